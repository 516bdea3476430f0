"""Runs a simulated federation from a checked configuration: data, devices, engine, run folder."""

import contextlib
import hashlib
import math
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.agent.local_source import DriftMonitor
from edge_client.data import columns, dataset, sources
from edge_client.data.tasks.registry import learning_task
from edge_client.pruning.channel_selection import shape_spec
from edge_client.storage.blob_store import BlobStore
from edge_client.training.evaluation import why_whole
from edge_server.config.board_profiles import BoardProfile, profile
from edge_server.config.checks.openings import check_can_be_simulated
from edge_server.config.config import Config
from edge_server.config.test_data import as_the_federation
from edge_server.coordinator import coordinator as assembly
from edge_server.coordinator import known_inputs, launch, network_check, run_context, scaling
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.initial_model import InitialModel, find_initial_model
from edge_server.coordinator.tier_assignment import WidthWork
from edge_server.observability.counters import RunCounters
from edge_server.observability.report.report import write_report
from edge_server.observability.snapshot import Watcher, WatcherGroup
from edge_server.releases.registry.register import default_registry
from edge_server.rounds.fleet import MAX_DEVICES
from edge_server.simulation import client_work, clock, cohorts, events, inputs
from edge_server.simulation.client_work import Engine, WorkSetup, device_folder
from edge_server.simulation.device import DeviceEdge, Presence, Surroundings
from edge_server.simulation.engines import prepare_engine
from edge_server.simulation.population import (
    GrowingData,
    SharedData,
    VirtualDevice,
    make_population,
    share_data,
)
from edge_server.simulation.resume import ResumedRun, open_folder, restore
from edge_server.simulation.simulation import Simulation
from edge_server.storage import disk, records, service_folder
from edge_server.storage.run_folder import RunFolder
from schemas import messages, values
from schemas.base import fields_of
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap

Notify = Callable[[Iterable[str]], None]
Stopped = Callable[[Callable[[], None]], AbstractContextManager[None]]
"""Inside, what asks the user's run to end calls the function."""


@contextlib.contextmanager
def ended_by_signals(end: Callable[[], None]) -> Iterator[None]:
    """As `stopped_by_signals`, for a run that others follow: no other begins, even if this one ends."""
    received: list[bool] = []

    def stop() -> None:
        received.append(True)
        end()

    with launch.stopped_by_signals(stop):
        yield
    if received:
        raise KeyboardInterrupt


def simulate(
    config: Config,
    *,
    out: Path,
    watcher: Watcher,
    resume: bool = False,
    export: bool = True,
    notify: Notify = launch.print_notices,
    stopped: Stopped = launch.stopped_by_signals,
) -> records.Summary:
    """Run a simulation to its end, or to Ctrl-C, and write its run folder at `out`.

    `resume` continues after the last closed round, `export` writes ONNX files, and `notify` gets what the
    user should know before the first round. Raises `ConfigError`, and `EdgeError` for a disk that is full.
    """
    with disk.told_in_words(out):
        config = known_inputs.with_known_inputs(inputs.as_simulated(config), registries_near(out), out)
        config = scaling.with_scaling(config, out, registries_near(out), _measure_statistics)
        return _simulate(config, out, watcher, resume=resume, export=export, notify=notify, stopped=stopped)


def _measure_statistics(config: Config, folder: Path) -> records.Summary:
    """Simulate a pass of statistics, from its beginning if it was cut off."""
    shutil.rmtree(folder, ignore_errors=True)
    return _simulate(
        config,
        folder,
        WatcherGroup(),
        resume=False,
        export=False,
        notify=launch.print_notices,
        stopped=ended_by_signals,
    )


def _simulate(
    config: Config,
    out: Path,
    watcher: Watcher,
    *,
    resume: bool,
    export: bool,
    notify: Notify,
    stopped: Stopped = launch.stopped_by_signals,
) -> records.Summary:
    """`simulate` with a configuration in which nothing is left to be asked."""
    begin_engine = prepare_engine(config.simulation)
    data = inputs.training_data(config)
    first = checked_initial_model(config, data, out, resume=resume)
    population = make_population(config, data.strata, data.origins)
    config = cohorts.with_cohort_size(config, data, population)
    folder = open_folder(out, config, resume=resume)
    timeline: events.Timeline[events.TimelineEvent] = events.Timeline()
    tally = RunCounters(lambda: timeline.now, most=max(MAX_DEVICES, config.clients.num_clients))
    resumed = restore(folder, tally) if resume else None
    coordinator = assemble_simulated(config, folder, resumed, first, resume=resume)
    notify(coordinator.model.notices)
    data = columns.in_columns(data, coordinator.context.columns.columns)
    # What devices say of their own data is the same before their classes are agreed and after.
    own = data.subset(())
    if names := coordinator.context.classes.names:
        data = as_the_federation(data, coordinator.context.spec, names)
    with _scratch(out) as scratch:
        shared = share_data(data, population, scratch)
        device, cohort = config.simulation.device, config.simulation.cohort_size
        setup = client_work.WorkSetup(
            shared, scratch / "blobs", out / "clients", config.model.name, device, cohort
        )
        # The workers have the data.
        del data
        with contextlib.closing(begin_engine(setup)) as engine:
            around = make_surroundings(config, coordinator, engine, setup, timeline, tally)
            simulation = Simulation(
                make_edges(config, population, own, around, shared),
                around,
                coordinator,
                watcher,
                export=export,
                resumed=resumed,
            )
            with stopped(simulation.stop):
                summary = simulation.run(resumed.boundary if resumed else None)
                write_report(folder.path)
    return summary


@contextlib.contextmanager
def _scratch(out: Path) -> Iterator[Path]:
    """A temporary folder on the disk of the run's blobs, so that these can be linked."""
    folder = out / "scratch"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def checked_initial_model(
    config: Config, data: dataset.LabelledData, out: Path, *, resume: bool
) -> InitialModel | None:
    """The model that a new run starts from, if any; `ConfigError` if the network does not fit the data."""
    check_can_be_simulated(config)
    first = None if resume else find_initial_model(config, registries_near(out))
    network_check.check_network(config, data, first)
    return first


def assemble_simulated(
    config: Config, folder: RunFolder, resumed: ResumedRun | None, first: InitialModel | None, *, resume: bool
) -> Coordinator:
    """The coordinator, at the last closed round if any; without one it starts from the recorded model."""
    if resume and resumed is None:
        first = find_initial_model(config, registries_near(folder.path), folder)
    return assembly.assemble(
        config,
        f"{config.federation.name[:40]}-seed-{config.federation.seed}",
        folder,
        resumable=config.clients.mode == "rounds",
        resume=resumed.resumption if resumed else None,
        durable=False,
        secret=run_context.repeatable_secret(config.federation.seed),
        broadcasts=False,
        first=first,
    )


def registries_near(out: Path) -> list[Path]:
    return [default_registry(out), service_folder.RUNS / "registry"]


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
    count = partial(task_work, work=work, channel_map=coordinator.model.context.channel_map)
    return Surroundings(config.federation.name, timeline, engine, store, setup.clients, tally, count)


def task_work(task: messages.Task, *, work: WidthWork, channel_map: ChannelMap) -> clock.Work:
    """As `Surroundings.work`."""
    spec = shape_spec(task.spec, task.personal, channel_map)
    scores = task.personal is not None and task.personal.scored_by is not None
    before = work.macs(task.spec) if scores else 0
    if not isinstance(task, messages.TrainTask) or not task.training.local_epochs:
        return clock.Work(work.macs(spec), before)
    trained = frozenset(task.trained) if task.trained is not None and _keeps_features(task) else None
    each = work.macs(spec, trained)
    step, frozen = round(work.share(task.spec, trained) * each), work.macs(spec) - each
    if frozen and not work.stays(trained):
        return clock.Work(step, before + frozen)
    return clock.Work(step, before, frozen)


def _keeps_features(task: messages.TrainTask) -> bool:
    plan = task.training
    why = why_whole(plan.objectives, learning_task(task.model.task), plan.augment)
    return plan.feature_cache_mb > 0 and not why


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
            **fields_of(data, "input_shape", "num_classes", "columns", "named"),
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
