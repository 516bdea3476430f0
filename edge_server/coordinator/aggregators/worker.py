"""What an aggregator process does: it examines updates, and adds updates to a partial sum.

Both are functions of files that the server has on disk. A process that dies takes nothing with it: another
one does the same again.
"""

import gc
import logging
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_client.storage.blob_store import BlobStore
from edge_client.system.logging.setup import begin_inherited_log
from edge_server.coordinator.validation.contents import UnpackedCache, UnpackedInMemory
from edge_server.coordinator.validation.update import (
    NOT_ITS_BYTES,
    Examination,
    client_update,
    examine_update,
)
from edge_server.coordinator.worker_processes import end_with_parent
from edge_server.strategy.aggregation import array_stores, partial_sums
from edge_server.strategy.aggregation.transforms import TRANSFORMS, Transform
from edge_server.strategy.aggregation.updates import ClientUpdate, SummedArrays
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.groups.rule import GroupRule
from schemas.messages import TrainTask, Update
from schemas.strategy import StrategySpec
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Groups


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
        for group, arrays in partial_sums.without_arrays(source).groups.items()
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
        self._sum: partial_sums.RunningSum | None = None
        self._held: dict[str, ToAdd] = {}
        self._rests: dict[str, Groups] = {}

    def add(self, members: Iterable[ToAdd]) -> None:
        """Add updates that are sound; decompressed ones may still be in memory (`unpacked`)."""
        fresh = [member for member in members if not self._holds(member)]
        if any(member.update.device in self._held for member in fresh):
            self._forget()
        if fresh:
            self._sum = self._sum or partial_sums.RunningSum(self._transforms, self._channel_map)
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

    def take(self, keep: array_stores.NewArrayStore) -> dict[str, Groups]:
        """Write the sum into stores that `keep` makes, and begin anew; returns the rests by client."""
        assert self._sum is not None
        self._sum.written(keep)
        rests = self._rests
        self._forget()
        return rests

    def _holds(self, member: ToAdd) -> bool:
        held = self._held.get(member.update.device)
        return held is not None and held.key == member.key


class ToExamine(NamedTuple):
    """An update, all chunks of which are on disk, its task, and the weight that it will likely have.

    With a weight the update may be added before the round is closed.
    """

    update: Update
    task: TrainTask
    weight: int | None = None


@dataclass(frozen=True)
class AggregatorSetup:
    """What a process needs to know of the run: strategy, channel map, and the folders of its files."""

    federation: str
    strategy: StrategySpec
    channel_map: ChannelMap
    blobs: Path
    unpacked: Path
    sums: Path

    @cached_property
    def rules(self) -> list[GroupRule]:
        """The rules of the groups that devices may send besides the model."""
        return [make_component("group rule", GROUPS, rule) for rule in self.strategy.groups]

    @cached_property
    def transforms(self) -> list[Transform]:
        """The transforms, each of which looks at one update alone (`summability`)."""
        return [make_component("transform", TRANSFORMS, named) for named in self.strategy.transforms]

    @cached_property
    def store(self) -> BlobStore:
        """The server's blobs, of which this process verifies some."""
        return BlobStore(self.blobs, only_writes=True)

    @cached_property
    def early_sums(self) -> EarlySums:
        """What this process has added of a round that is not closed."""
        return EarlySums(self.transforms, self.channel_map, self.blobs, self.unpacked)

    @cached_property
    def cache(self) -> UnpackedCache:
        """The decompressed updates, which all processes share."""
        return UnpackedCache(self.unpacked)

    def read(self, name: str, members: dict[str, int]) -> partial_sums.PartialSum:
        """The sum that a process has written under this name."""
        kinds = {
            key: (partial_sums.WHOLE, layout.shape) for key, layout in self.channel_map.parameters.items()
        }
        paths = _paths(self.sums, name)
        return partial_sums.PartialSum(
            members, {group: array_stores.FileArrays.reopen(path, kinds) for group, path in paths.items()}
        )

    def remove_sums(self) -> None:
        """Delete all written sums; open ones can still be read."""
        for path in self.sums.glob("*"):
            path.unlink(missing_ok=True)


_setup: AggregatorSetup


def begin(setup: AggregatorSetup) -> None:
    """Set up this process, which ignores Ctrl-C and ends with the server."""
    global _setup
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    begin_inherited_log(logging.WARNING, federation=setup.federation)
    _setup = setup
    gc.freeze()


def examine(updates: list[ToExamine]) -> list[Examination]:
    """Verify, sync and examine updates, in their order; add those sound ones that have a weight.

    The groups of a sound update are left decompressed on disk unless it was added, and not returned.
    """
    _setup.store.keep_sound(asked.update.blob for asked in updates)
    early = _setup.early_sums
    found = [_examine(asked, _setup.cache if asked.weight is None else early.unpacked) for asked in updates]
    early.add(
        ToAdd(asked.update, asked.weight)
        for asked, examined in zip(updates, found, strict=True)
        if asked.weight is not None and examined.reason is None
    )
    return found


def _examine(asked: ToExamine, unpacked: UnpackedCache) -> Examination:
    update = asked.update
    if update.blob.digest not in _setup.store:
        return NOT_ITS_BYTES
    found = examine_update(
        update,
        _setup.blobs / update.blob.digest,
        asked.task,
        _setup.channel_map,
        _setup.rules,
        unpacked=unpacked,
    )
    return replace(found, groups={})


def add_members(members: list[ToAdd], name: str) -> dict[str, Groups]:
    """Add these updates, and write their sum under this name; those added early are not read again.

    Returns what remains of each update, by client: its other groups, and the kinds of its parameters.
    """
    _setup.sums.mkdir(parents=True, exist_ok=True)
    stores = iter([array_stores.FileArrays(_setup.sums, path) for path in _paths(_setup.sums, name).values()])
    if _setup.early_sums.complete(members):
        return _setup.early_sums.take(lambda: next(stores))
    sources = [source_of(member, _setup.blobs, _setup.cache) for member in members]
    weights = {member.update.device: member.weight for member in members}
    partial_sums.sum_clients(
        sources, weights, _setup.transforms, _setup.channel_map, keep=lambda: next(stores)
    )
    return {source.client: rest_of(source) for source in sources}


def _paths(folder: Path, name: str) -> dict[str, Path]:
    return {group: folder / f"{name}.{group}" for group in (partial_sums.COARSE, partial_sums.FINE)}
