"""The examples of all virtual devices in files that worker processes map without copying them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_server.simulation.growth import Counts
from edge_server.simulation.population import VirtualDevice
from schemas.values import Preprocessing

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
        data = LabelledData(images, labels, self.preprocessing.class_names, self.preprocessing)
        return DataShares(self.ranges, data, order)


@dataclass(frozen=True, eq=False)
class DataShares:
    """All examples; `order` holds their indices, device by device."""

    ranges: Mapping[str, Range]
    data: LabelledData
    order: np.ndarray

    def of(self, device: str, counts: Counts | None = None) -> LocalData:
        """A copy of the device's examples, or of the first ones of each part."""
        begin, middle, end = self.ranges[device]
        train, held_out = self.order[begin:middle], self.order[middle:end]
        if counts is not None:
            train, held_out = train[: counts.train], held_out[: counts.held_out]
        return LocalData(self.data.subset(train), self.data.subset(held_out))


def share_data(data: LabelledData, devices: Sequence[VirtualDevice], folder: Path) -> SharedData:
    """Write images, labels and the devices' order of examples below `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    ranges: dict[str, Range] = {}
    parts, position = [], 0
    for device in devices:
        middle = position + len(device.train)
        ranges[device.name] = (position, middle, middle + len(device.held_out))
        parts += [device.train, device.held_out]
        position = middle + len(device.held_out)
    np.save(folder / "images.npy", data.images)
    np.save(folder / "labels.npy", data.labels)
    np.save(folder / "order.npy", np.concatenate(parts).astype(np.int64))
    return SharedData(folder, ranges, data.preprocessing)
