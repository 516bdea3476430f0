"""Makes all virtual devices of a simulation, and the surroundings that they share."""

import hashlib
import math
from bisect import bisect_right
from functools import cache, partial
from typing import Any

import numpy as np

from edge_client.agent.local_source import DriftMonitor
from edge_client.data import dataset, sources
from edge_client.pruning.channel_selection import shape_spec
from edge_client.storage.blob_store import BlobStore
from edge_server.config.board_profiles import BoardProfile, profile
from edge_server.config.config import Config
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.tier_assignment import WidthWork
from edge_server.observability.counters import RunCounters
from edge_server.simulation import clock, events
from edge_server.simulation.client_work import Engine, WorkSetup, device_folder
from edge_server.simulation.device import DeviceEdge, Presence, Surroundings
from edge_server.simulation.population import GrowingData, SharedData, VirtualDevice
from schemas import messages, values
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap


def make_surroundings(
    config: Config,
    coordinator: Coordinator,
    engine: Engine[Any],
    setup: WorkSetup,
    timeline: events.Timeline[events.TimelineEvent],
    tally: RunCounters,
) -> Surroundings:
    store = BlobStore(setup.blobs, durable=False)
    work = WidthWork(coordinator.model)
    macs = partial(task_macs, work=work, channel_map=coordinator.model.context.channel_map)
    return Surroundings(config.federation.name, timeline, engine, store, setup.clients, tally, macs)


def task_macs(task: messages.Task, *, work: WidthWork, channel_map: ChannelMap) -> tuple[int, int]:
    """As `Surroundings.macs`."""
    spec = shape_spec(task.spec, task.personal, channel_map)
    trains = isinstance(task, messages.TrainTask) and task.training.local_epochs > 0
    share = work.share(task.spec) if trains else 1.0
    scores = task.personal is not None and task.personal.scored_by is not None
    return round(share * work.macs(spec)), work.macs(task.spec) if scores else 0


def make_edges(
    config: Config,
    population: tuple[VirtualDevice, ...],
    data: dataset.LabelledData,
    around: Surroundings,
    shared: SharedData,
) -> dict[str, DeviceEdge]:
    """The virtual devices by name; of up to 100,000, equal ones share their profile and data card."""
    shares = shared.open_shares() if config.simulation.arrives_s else None

    @cache
    def profile_of(board: str, tier: int, trainer: values.TrainerName) -> values.CapabilityProfile:
        if config.simulation.memory:
            return clock.undecided_profile(profile(board), trainer)
        return values.CapabilityProfile(machine=board, tier=tier, trainers=(trainer,))

    @cache
    def card_of(examples: int) -> values.DataCard:
        return values.DataCard(
            source=sources.part_of(str(config.data.source), "train"),
            examples=examples,
            input_shape=data.input_shape,
            num_classes=data.num_classes,
            columns=data.columns,
            named=data.named,
        )

    def growing(device: VirtualDevice) -> GrowingData | None:
        if shares is None:
            return None
        read, models = partial(shares.of, device.name), device_folder(around.clients, device.name) / "models"
        return GrowingData(device.arrivals, card_of(len(device.train)), read, DriftMonitor(models))

    return {
        device.name: DeviceEdge(
            device,
            clock.Pace(profile(device.board or "ideal"), len(device.train)),
            around,
            profile=profile_of(device.board or "", device.tier, device.trainer),
            data=card_of(len(device.train)),
            presence=presence_of(config, device, index),
            growing=growing(device),
        )
        for index, device in enumerate(population)
    }


def presence_of(config: Config, device: VirtualDevice, index: int) -> Presence | None:
    """When device number `index` is online; None means always."""
    joins = config.simulation.joins_s
    if joins:
        return Latecomer(joins[min(index, len(joins) - 1)])
    if device.board is None or not config.simulation.dropouts:
        return None
    return Availability(profile(device.board), seed=config.federation.seed, device=device.name)


# When a virtual device is online: alternating online and offline spells in virtual time.
#
# Each spell's length is exponential with the board's mean (an on-off Markov process). At time 0 the device is
# online with the stationary probability online_s / (online_s + offline_s). An exponential spell has no
# memory, so the first one is drawn like the others.


class Availability:
    """One device's spells: a pure function of board, seed and device name."""

    def __init__(self, board: BoardProfile, *, seed: int, device: str) -> None:
        self._board = board
        digest = hashlib.sha256(f"{seed}/{device}".encode()).digest()
        self._rng = np.random.default_rng(int.from_bytes(digest))
        self._changes: list[float] = []
        self._first = board.offline_s == 0 or self._draw_first()

    def online(self, t: float) -> bool:
        """Whether the device is online at `t` seconds; at a change, the state after it."""
        return self._state(self._spell(t))

    def next_change(self, t: float) -> float:
        """The time of the next change after `t`; infinity if there is none."""
        spell = self._spell(t)
        return math.inf if self._board.offline_s == 0 else self._changes[spell]

    def _draw_first(self) -> bool:
        share = self._board.online_s / (self._board.online_s + self._board.offline_s)
        return bool(self._rng.random() < share)

    def _state(self, spell: int) -> bool:
        return self._first if spell % 2 == 0 else not self._first

    def _spell(self, t: float) -> int:
        """The number of the spell at `t`, from 0; draws spells in order until one ends after `t`."""
        if self._board.offline_s == 0:
            return 0
        if not math.isfinite(t):
            raise InvariantError(f"the time must be finite, not {t}: a device has infinitely many spells")
        while not self._changes or self._changes[-1] <= t:
            mean = self._board.online_s if self._state(len(self._changes)) else self._board.offline_s
            began = self._changes[-1] if self._changes else 0.0
            self._changes.append(began + float(self._rng.exponential(mean)))
        return bisect_right(self._changes, t)


class Latecomer:
    """A device that joins at `at_s` seconds and stays online."""

    def __init__(self, at_s: float) -> None:
        self._at_s = at_s

    def online(self, t: float) -> bool:
        return t >= self._at_s

    def next_change(self, t: float) -> float:
        return math.inf if self.online(t) else self._at_s
