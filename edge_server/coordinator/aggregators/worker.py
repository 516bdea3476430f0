"""What an aggregator process does: it examines updates, and adds updates to a partial sum.

Both are functions of files that the server has on disk. A process that dies takes nothing with it: another
one does the same again.
"""

import gc
import logging
import signal
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from edge_client.storage.blob_store import BlobStore
from edge_client.system.logging.setup import begin_inherited_log
from edge_server.coordinator.validation.unpacked_cache import UnpackedCache
from edge_server.coordinator.validation.update import (
    NOT_ITS_BYTES,
    Examination,
    client_update,
    examine_update,
)
from edge_server.coordinator.worker_processes import end_with_parent
from edge_server.strategy.aggregation.array_stores import FileArrays
from edge_server.strategy.aggregation.partial_sums import (
    COARSE,
    FINE,
    WHOLE,
    PartialSum,
    sum_clients,
    without_arrays,
)
from edge_server.strategy.aggregation.transforms import TRANSFORMS, Transform
from edge_server.strategy.aggregation.updates import SummedArrays
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.groups.rule import GroupRule
from schemas.messages import TrainTask, Update
from schemas.strategy import StrategySpec
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups


class ToExamine(NamedTuple):
    """An update, all chunks of which are on disk, and its task."""

    update: Update
    task: TrainTask


class ToAdd(NamedTuple):
    """An accepted update, its whole weight, and the aggregations since the model that it trained."""

    update: Update
    weight: int
    staleness: int


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
    def cache(self) -> UnpackedCache:
        """The decompressed updates, which all processes share."""
        return UnpackedCache(self.unpacked)

    def read(self, name: str, members: dict[str, int]) -> PartialSum:
        """The sum that a process has written under this name."""
        kinds = {key: (WHOLE, layout.shape) for key, layout in self.channel_map.parameters.items()}
        paths = _paths(self.sums, name)
        return PartialSum(members, {group: FileArrays.reopened(path, kinds) for group, path in paths.items()})

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
    """Verify, sync and examine updates, in their order.

    The groups of a sound update are left decompressed on disk, and not returned.
    """
    _setup.store.keep_sound(asked.update.blob for asked in updates)
    return [_examine(*asked) for asked in updates]


def _examine(update: Update, task: TrainTask) -> Examination:
    if update.blob.digest not in _setup.store:
        return NOT_ITS_BYTES
    found = examine_update(
        update,
        _setup.blobs / update.blob.digest,
        task,
        _setup.channel_map,
        _setup.rules,
        unpacked=_setup.cache,
    )
    return replace(found, groups={})


def add(members: list[ToAdd], name: str) -> dict[str, Groups]:
    """Add these updates, and write their sum under this name.

    Returns what remains of each update, by client: its other groups, and the kinds of its parameters.
    """
    sources = [
        client_update(
            member.update,
            _setup.blobs / member.update.blob.digest,
            unpacked=_setup.cache,
            staleness=member.staleness,
            ratio=None,
        )
        for member in members
    ]
    weights = {member.update.device: member.weight for member in members}
    _setup.sums.mkdir(parents=True, exist_ok=True)
    stores = iter([FileArrays(_setup.sums, path) for path in _paths(_setup.sums, name).values()])
    sum_clients(sources, weights, _setup.transforms, _setup.channel_map, keep=lambda: next(stores))
    return {source.client: _rest(without_arrays(source).groups) for source in sources}


def _rest(groups: Groups) -> Groups:
    return {
        group: arrays if isinstance(arrays, SummedArrays) else {name: arrays[name] for name in arrays}
        for group, arrays in groups.items()
    }


def _paths(folder: Path, name: str) -> dict[str, Path]:
    return {group: folder / f"{name}.{group}" for group in (COARSE, FINE)}
