"""The virtual devices of a simulation with their tiers, boards and examples."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_client.data import dataset, local
from edge_client.data.drift import DriftTest, ExampleRecord
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.local import LocalData
from edge_client.data.partition import Indices, parse_partition, partition_indices, split_indices
from edge_client.data.tasks.registry import learning_task
from edge_client.training.feature_cache import keep_digests
from edge_server.config.board_profiles import for_tier
from edge_server.config.config import Config
from edge_server.coordinator.round_rules import make_membership
from schemas.errors import ConfigError
from schemas.messages import Update
from schemas.values import DataCard, Preprocessing, TrainerName

# Data that grows in virtual time: how much of it a device has, has trained on and has tested for drift.

Times = NDArray[np.float64]
HELD_MARKS = 10**12  # Marks of held-out examples begin here, those of training examples at 0


class Counts(NamedTuple):
    """Numbers of training and of held-out examples."""

    train: int = 0
    held_out: int = 0


NONE = Counts()


@dataclass(frozen=True)
class Growth:
    """What a device knows of its data: how many examples are `there`, were there at the last training, and
    have been compared by a drift test; and the alarm about them, if one stands.
    """

    there: Counts = NONE
    known: Counts = NONE
    tested: Counts = NONE
    alarm: DriftAlarm | None = None

    @property
    def new(self) -> int:
        """Training examples since the last training."""
        return self.there.train - self.known.train

    def after_training(self, used: Counts, received_loss: float | None) -> "Growth":
        """The growth once the device has trained a model of this loss on the first `used` examples."""
        alarm = self.alarm and self.alarm.after_training(received_loss)
        tested = Counts(*np.maximum(self.tested, used).tolist())
        return replace(self, known=used, tested=tested, alarm=alarm)

    def grown(self, there: Counts, data: Callable[[Counts], LocalData], test: DriftTest) -> "Growth":
        """The growth with these examples `there`, which `test` compares with the known ones."""
        after = replace(self, there=there)
        found = test(data(there), after._record())
        if found is None:
            return after
        alarm = self.alarm if found.finding is None else DriftAlarm(found.finding)
        return replace(after, tested=there, alarm=alarm)

    def _record(self) -> ExampleRecord:
        """The growth as a device's own record, with places for marks."""
        first = (0, HELD_MARKS)
        there, known, tested = (
            [np.arange(begin, begin + count) for begin, count in zip(first, counts, strict=True)]
            for counts in (self.there, self.known, self.tested)
        )
        return ExampleRecord(
            held=there[1], train=there[0], known=np.concatenate(known), tested=np.concatenate(tested)
        )


def arrival_times(labels: dataset.Labels, indices: Indices, arrives_s: Mapping[int, float]) -> Times:
    return np.array([arrives_s.get(int(label), 0.0) for label in labels[indices]])


def in_order(indices: Indices, times: Times) -> tuple[Indices, Times]:
    order = np.argsort(times, kind="stable")
    return indices[order], times[order]


def counts_at(arrivals: Sequence[Times], t: float) -> Counts:
    """How many training and held-out examples have come by `t` seconds."""
    return Counts(*(int(np.searchsorted(times, t, side="right")) for times in arrivals))


def next_arrival(arrivals: Sequence[Times], there: Counts) -> float:
    """When the first examples come that are not `there` yet; infinity if all are."""
    later = (times[count:] for times, count in zip(arrivals, there, strict=True))
    return min((float(times[0]) for times in later if len(times)), default=float("inf"))


class GrowingData:
    """Data whose training and held-out examples come at the times `arrivals`.

    `card` describes all of it, `read` returns the first examples of both parts, `test` looks for a drift.
    """

    def __init__(
        self, arrivals: Sequence[Times], card: DataCard, read: Callable[[Counts], LocalData], test: DriftTest
    ) -> None:
        self._arrivals, self._card, self._read, self._test = arrivals, card, read, test
        self.growth = Growth(there=counts_at(arrivals, 0.0))
        self._used = self.growth.there

    @property
    def card(self) -> DataCard:
        alarm = self.growth.alarm
        said = {
            "examples": self.growth.there.train,
            "new": self.growth.new,
            "drift": None if alarm is None else alarm.finding,
        }
        return self._card.model_copy(update=said)

    def next_arrival(self) -> float:
        return next_arrival(self._arrivals, self.growth.there)

    def take(self, now: float) -> None:
        """Count the examples that have come by `now`, and look for a drift."""
        self.growth = self.growth.grown(counts_at(self._arrivals, now), self._read, self._test)

    def begin_job(self) -> tuple[Counts, DriftAlarm | None]:
        """The examples that a job is done with, and the alarm about them."""
        self._used = self.growth.there
        return self._used, self.growth.alarm

    def note_training(self, update: Update) -> bool:
        """Note that the server has accepted the last job's update; returns whether the card may differ."""
        before = self.growth
        if update.metrics.epochs:
            self.growth = before.after_training(self._used, update.metrics.received_loss)
        return self.growth is not before and bool(before.new or before.alarm)


@dataclass(frozen=True, eq=False, slots=True)
class VirtualDevice:
    """One device: its tier (1 is the weakest), board and trainer, and the indices of its examples.

    If the boards' memory counts, the server chooses the tier. Of data that grows, examples are in the order
    in which they come, and `arrivals` are the times of training and of held-out ones.
    """

    name: str
    tier: int
    board: str | None
    train: Indices
    held_out: Indices
    trainer: TrainerName
    arrivals: tuple[Times, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def make_population(
    config: Config, labels: dataset.Labels, origins: Indices | None = None
) -> tuple[VirtualDevice, ...]:
    """The devices of a federation; `ConfigError` if the data cannot be partitioned as configured.

    Tiers alternate (ATTENDING, section 4.1: uniformly over the tiers), trainers within a tier.
    """
    count, tiers = config.clients.num_clients, len(config.tiers.ratios)
    arrives_s = _arrives_s(config, labels)
    shares, trainers = _shares(config, labels, origins), config.simulation.trainers
    devices = []
    for index, share in enumerate(shares):
        tier = index % tiers + 1
        fraction, seed = config.simulation.hold_out, config.federation.seed
        own = None if origins is None else origins[share]
        train, held_out = split_indices(share, labels[share], fraction=fraction, seed=seed, origins=own)
        board = _board(index, tier, 1 if config.simulation.memory else tiers, config.simulation.clock)
        trainer = trainers[index // tiers % len(trainers)]
        name, arrivals = device_name(index, count), ()
        if arrives_s:
            parts = [in_order(p, arrival_times(labels, p, arrives_s)) for p in (train, held_out)]
            (train, held_out), arrivals = zip(*parts, strict=True)
            if counts_at(arrivals, 0.0).train == 0:
                raise ConfigError(
                    f"{name} has no example at the start",
                    key="[simulation] arrives-s",
                    remedy="let fewer classes come later, or share the data more evenly",
                )
        devices.append(
            VirtualDevice(
                name, tier, board, train, held_out, trainer, arrivals, config.simulation.labels_of(index)
            )
        )
    return tuple(devices)


def _arrives_s(config: Config, labels: dataset.Labels) -> Mapping[int, float]:
    """When classes come; `ConfigError` for a class that the data has not."""
    arrives_s = config.simulation.arrives_s
    if arrives_s and not learning_task(config.model.task).exclusive:
        raise ConfigError("examples come by class, and this task has none", key="[simulation] arrives-s")
    if odd := sorted(arrives_s.keys() - set(np.unique(labels).tolist())):
        raise ConfigError(f"the data has no class {odd[0]}", key="[simulation] arrives-s")
    return arrives_s


def check_chosen(config: Config, devices: Iterable[VirtualDevice]) -> None:
    """Raise `ConfigError` if `[clients] where` chooses none of the devices."""
    membership = make_membership(config)
    if not any(membership.admits(device.name, device.labels) for device in devices):
        raise ConfigError(
            f"[clients] {membership} chooses none of the virtual devices",
            remedy="give them labels with [simulation] labels",
        )


def device_name(index: int, count: int) -> str:
    """The name of device `index`, from 0: `device-0001`; all names of a run have the same length."""
    return f"device-{index + 1:0{max(4, len(str(count)))}}"


def _board(index: int, tier: int, tiers: int, names: Sequence[str]) -> str | None:
    """With several tiers a board for the device's tier; with one tier all boards in turn."""
    if not names:
        return None
    return names[index % len(names)] if tiers == 1 else for_tier(tier, tiers, names)


def _shares(config: Config, labels: dataset.Labels, origins: Indices | None) -> list[Indices]:
    count, most = config.clients.num_clients, config.data.samples_per_client
    if count > len(labels):
        raise ConfigError(
            f"{count} devices are more than {len(labels)} examples", key="[clients] num-clients"
        )
    if most is not None and count * most > len(labels):
        raise ConfigError(
            f"{count} devices of {most} need {count * most} examples, the data has {len(labels)}",
            key="[data] samples-per-client",
        )
    partition = parse_partition(config.data.partition_spec)
    seed = config.federation.seed
    shares = partition_indices(labels, partition, count=count, seed=seed, origins=origins)
    if most is None:
        return shares
    rng = np.random.default_rng([seed, most])
    return [np.sort(rng.permutation(share)[:most]) for share in shares]


# The examples of all virtual devices in files that worker processes map without copying them.
Range = tuple[int, int, int]
"""Start of a device's training examples, start of its held-out examples, and end, in the common order."""


@dataclass(frozen=True)
class SharedData:
    """The files of all examples, and each device's range: small enough to send to every worker."""

    folder: Path
    ranges: Mapping[str, Range]
    preprocessing: Preprocessing

    def open_shares(self) -> "DataShares":
        """The data with its arrays, which are mapped from the files."""
        images, labels, order = (
            np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in ("images", "labels", "order")
        )
        data = dataset.LabelledData(images, labels, self.preprocessing.class_names, self.preprocessing)
        return DataShares(self.ranges, data, order)


@dataclass(frozen=True, eq=False)
class DataShares:
    """The examples of all devices; `order` holds their indices, device by device."""

    ranges: Mapping[str, Range]
    data: dataset.LabelledData
    order: np.ndarray
    _digests: dict[tuple[int, int], list[bytes]] = field(default_factory=dict, repr=False)

    def of(self, device: str, counts: Counts | None = None) -> local.LocalData:
        """A copy of the device's examples, or of the first ones of each part."""
        begin, middle, end = self.ranges[device]
        ends = (middle, end)
        if counts is not None:
            ends = min(middle, begin + counts.train), min(end, middle + counts.held_out)
        return local.LocalData(self._part(begin, ends[0]), self._part(middle, ends[1]))

    def _part(self, start: int, stop: int) -> dataset.LabelledData:
        part = self.data.subset(self.order[start:stop])
        keep_digests(part.images, self._digests.setdefault((start, stop), []))
        return part


def share_data(data: dataset.LabelledData, devices: Sequence[VirtualDevice], folder: Path) -> SharedData:
    """Write images and labels of the devices' examples and their order, device by device, below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    ranges: dict[str, Range] = {}
    parts, position = [], 0
    for device in devices:
        middle = position + len(device.train)
        ranges[device.name] = (position, middle, middle + len(device.held_out))
        parts += [device.train, device.held_out]
        position = middle + len(device.held_out)
    used, order = np.unique(np.concatenate(parts).astype(np.int64), return_inverse=True)
    _save_rows(folder / "images.npy", data, used)
    np.save(folder / "labels.npy", data.labels[used])
    np.save(folder / "order.npy", order.astype(np.int64))
    return SharedData(folder, ranges, data.preprocessing)


BLOCK_BYTES = 16 * 1024 * 1024


def _save_rows(path: Path, data: dataset.LabelledData, places: Indices) -> None:
    """Write the images at these places as an array, in blocks: they may be resized when they are read."""
    images = data.images
    header = {"descr": images.dtype.str, "fortran_order": False, "shape": (len(places), *images.shape[1:])}
    step = max(1, BLOCK_BYTES // max(1, images.dtype.itemsize * math.prod(images.shape[1:])))
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, len(places), step):
            file.write(np.ascontiguousarray(images[places[start : start + step]]).data)
