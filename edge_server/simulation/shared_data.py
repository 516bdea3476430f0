"""The data of all virtual devices as files that every worker process maps and none copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_server.simulation.population import VirtualDevice
from schemas.values import Preprocessing

Range = tuple[int, int, int]
"""Where a device's examples begin, where its held-out ones begin, where they end, in the list of all."""


@dataclass(frozen=True)
class SharedData:
    """What a worker needs to find a device's examples: small, so that it may travel to each one."""

    folder: Path
    ranges: Mapping[str, Range]
    preprocessing: Preprocessing

    def open(self) -> DataShares:
        """Map the files."""
        return self.carried().open()

    def carried(self) -> CarriedData:
        """The same with its arrays, still mapped: for a worker that has no access to the files."""
        images, labels, order = (
            np.asarray(np.load(self.folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))
            for name in ("images", "labels", "order")
        )
        return CarriedData(self.ranges, self.preprocessing, images, labels, order)


@dataclass(frozen=True, eq=False)
class CarriedData:
    """What `SharedData` names, arrays and all: images [N, C, H, W], labels [N], order [N]."""

    ranges: Mapping[str, Range]
    preprocessing: Preprocessing
    images: np.ndarray
    labels: np.ndarray
    order: np.ndarray

    def open(self) -> DataShares:
        """Take the arrays as they are."""
        names = self.preprocessing.class_names
        data = LabelledData(self.images, self.labels, names, self.preprocessing)
        return DataShares(self.ranges, data, self.order)


class DataShares:
    """All data, mapped or carried; `of` copies only what one device holds."""

    def __init__(self, ranges: Mapping[str, Range], data: LabelledData, order: np.ndarray) -> None:
        self._ranges, self._data, self._order = ranges, data, order

    def of(self, device: str) -> LocalData:
        """A device's own examples."""
        begin, middle, end = self._ranges[device]
        return LocalData(
            self._data.subset(self._order[begin:middle]), self._data.subset(self._order[middle:end])
        )


def share_data(data: LabelledData, devices: Sequence[VirtualDevice], folder: Path) -> SharedData:
    """Write images, labels and each device's numbers below `folder`, once for all workers."""
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
