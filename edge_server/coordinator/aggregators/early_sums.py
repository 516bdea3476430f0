"""Updates that an aggregator process adds as soon as it has examined them, while they are in memory.

When their round is closed, it will likely want them with the weights that `EarlyWeights` has given them.
Where it does not, its sum is made of the files.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_server.coordinator.validation.unpacked_cache import UnpackedCache, UnpackedInMemory
from edge_server.coordinator.validation.update import client_update
from edge_server.strategy.aggregation.array_stores import NewArrayStore
from edge_server.strategy.aggregation.partial_sums import RunningSum, without_arrays
from edge_server.strategy.aggregation.transforms import Transform
from edge_server.strategy.aggregation.updates import ClientUpdate, SummedArrays
from schemas.messages import Update
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups


class ToAdd(NamedTuple):
    """An accepted update, its whole weight, and the aggregations since the model that it trained."""

    update: Update
    weight: int
    staleness: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """What two updates of one client must have in common to add the same to a sum."""
        return self.update.blob.digest, self.weight


def source_of(member: ToAdd, blobs: Path, unpacked: UnpackedCache) -> ClientUpdate:
    """The update in the folder `blobs`, as the strategy sees it."""
    path = blobs / member.update.blob.digest
    return client_update(member.update, path, unpacked=unpacked, staleness=member.staleness, ratio=None)


def rest_of(source: ClientUpdate) -> Groups:
    """What remains of an update that is in a sum: its other groups, and the kinds of its parameters."""
    return {
        group: arrays
        if isinstance(arrays, SummedArrays)
        else {name: np.array(arrays[name]) for name in arrays}
        for group, arrays in without_arrays(source).groups.items()
    }


class EarlySums:
    """The sum of those updates of one round that this process has examined, as far as they were to be added.

    `transforms` look at one update alone; `blobs` is the folder of the updates, `folder` that of
    decompressed ones.
    """

    def __init__(
        self, transforms: Sequence[Transform], channel_map: ChannelMap, blobs: Path, folder: Path
    ) -> None:
        self._transforms, self._channel_map, self._blobs = transforms, channel_map, blobs
        self.unpacked = UnpackedInMemory(folder)
        self._forget()

    def _forget(self) -> None:
        self._sum: RunningSum | None = None
        self._held: dict[str, ToAdd] = {}
        self._rests: dict[str, Groups] = {}

    def add(self, members: Iterable[ToAdd]) -> None:
        """Add updates that are sound; decompressed ones may still be in memory (`unpacked`)."""
        fresh = [member for member in members if not self._holds(member)]
        if any(member.update.device in self._held for member in fresh):
            self._forget()
        if fresh:
            self._sum = self._sum or RunningSum(self._transforms, self._channel_map)
            sources = [source_of(member, self._blobs, self.unpacked) for member in fresh]
            self._sum.add(sources, {member.update.device: member.weight for member in fresh})
            self._held |= {member.update.device: member for member in fresh}
            self._rests |= {source.client: rest_of(source) for source in sources}
        self.unpacked.forget()

    def complete(self, members: Sequence[ToAdd]) -> bool:
        """Add those of these updates that are missing; False if the sum has others, too, and is forgotten."""
        wanted = {member.update.device: member.key for member in members}
        held = {device: member.key for device, member in self._held.items()}
        if not held or not held.items() <= wanted.items():
            self._forget()
            return False
        self.add(members)
        return True

    def take(self, keep: NewArrayStore) -> dict[str, Groups]:
        """Write the sum into stores that `keep` makes, and begin anew; returns the rests by client."""
        assert self._sum is not None
        self._sum.written(keep)
        rests = self._rests
        self._forget()
        return rests

    def _holds(self, member: ToAdd) -> bool:
        held = self._held.get(member.update.device)
        return held is not None and held.key == member.key
