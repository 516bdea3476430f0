"""One client's update in global coordinates: what aggregation works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from numpy.typing import NDArray

from edge_client.slicing import expand, permute
from schemas.blobs import Arrays, Groups
from schemas.submodel import ChannelMap, SubModelSpec

Coverage = Mapping[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class ClientUpdate:
    """An update as it came in, in the coordinates of its sub-model; `groups["model"]` is w_k - w.

    `metrics` is what the device measured (`TrainingMetrics`, without what it does not know), and `staleness`:
    how many aggregations behind the model was that it trained (0 where rounds are synchronous); and `ratio`:
    the pruning ratio of its task.
    """

    client: str
    spec: SubModelSpec
    groups: Groups
    examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GlobalUpdate:
    """An update in global coordinates, per parameter: its `delta`, and which coordinates the client holds.

    All have the full shape P. `held` are the coordinates that the client trained, `coverage` those that
    count in the mean (a transform may widen it); `delta` is zero, or a transform's value, where not held.
    `order` says where the client's channels were moved to, if they were (place i has channel `order[g][i]`).
    """

    source: ClientUpdate
    delta: Arrays
    coverage: Coverage
    held: Coverage
    order: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Around:
    """What a transform may know beside the update: the model w, the channel map, the round's updates as sent.

    `ordered` says whether the channels of w were ranked before this round.
    """

    params: Arrays
    channel_map: ChannelMap
    sources: Sequence[ClientUpdate] = ()
    ordered: bool = False


class RoundUpdates(Sequence[GlobalUpdate]):
    """A round's updates in global coordinates, each made when it is asked for, and not kept unless `keep`.

    So a round of a thousand devices needs the memory of one.
    """

    def __init__(
        self,
        sources: Sequence[ClientUpdate],
        make: Callable[[ClientUpdate], GlobalUpdate],
        *,
        keep: bool = False,
    ) -> None:
        self.sources, self._make = tuple(sources), make
        self._kept: dict[int, GlobalUpdate] | None = {} if keep else None

    def _made(self, index: int) -> GlobalUpdate:
        if self._kept is None:
            return self._make(self.sources[index])
        if index not in self._kept:
            self._kept[index] = self._make(self.sources[index])
        return self._kept[index]

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> GlobalUpdate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[GlobalUpdate]: ...
    def __getitem__(self, index: int | slice) -> GlobalUpdate | Sequence[GlobalUpdate]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self._made(index if index >= 0 else len(self) + index)

    def __iter__(self) -> Iterator[GlobalUpdate]:
        return map(self._made, range(len(self)))


def is_statistic(name: str) -> bool:
    """Whether a parameter is a normalisation's running statistic: measured, not trained.

    Scaled or carried on by momentum, a variance may fall below 0: statistics are only ever averaged.
    """
    return name.rpartition(".")[2] in ("running_mean", "running_var")


def sources_of(updates: Sequence[GlobalUpdate]) -> Sequence[ClientUpdate]:
    """The updates as sent, without putting any into global coordinates."""
    return updates.sources if isinstance(updates, RoundUpdates) else [update.source for update in updates]


def globalised(update: ClientUpdate, channel_map: ChannelMap) -> GlobalUpdate:
    """Put an update back into the coordinates of the full model; layers not returned are not held."""
    full, held = expand(update.groups["model"], update.spec, channel_map)
    delta, coverage = {}, {}
    # In the map's order, whatever order a file has: sums over parameters are then the same to the bit.
    for name, layout in channel_map.parameters.items():
        delta[name] = full[name] if name in full else np.zeros(layout.shape, np.float32)
        coverage[name] = held[name] if name in held else np.zeros(layout.shape, bool)
    return GlobalUpdate(update, delta, coverage, coverage)


def group_of(update: GlobalUpdate, group: str, channel_map: ChannelMap) -> tuple[Arrays, Coverage]:
    """A group that came beside the model, in global coordinates and in the order that the update was given.

    Only arrays that bear a parameter's name; none where the client sent none.
    """
    sent = update.source.groups.get(group, {})
    parameters = {name: array for name, array in sent.items() if name in channel_map.parameters}
    full, coverage = expand(parameters, update.source.spec, channel_map)
    return permute(full, update.order, channel_map), permute(coverage, update.order, channel_map)
