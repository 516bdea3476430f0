"""The virtual devices of a simulation with their tiers, boards and examples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_client.data import dataset, local
from edge_client.data.partition import Indices, parse_partition, partition_indices, split_indices
from edge_client.data.tasks.registry import learning_task
from edge_client.training.feature_cache import keep_digests
from edge_server.config.board_profiles import for_tier
from edge_server.config.config import Config
from edge_server.simulation.growth import Counts, Times, arrival_times, counts_at, in_order
from schemas.errors import ConfigError
from schemas.values import Preprocessing, TrainerName


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
