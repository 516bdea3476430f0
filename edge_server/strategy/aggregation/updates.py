"""One client's update in global coordinates: what aggregation works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any, overload

from edge_client.pruning.index_sets import Reach, nowhere, reach_of
from edge_client.pruning.slicing import check
from edge_server.strategy.aggregation.coverage import Order, UpdateCoverage
from edge_server.strategy.aggregation.deltas import DeltaRows, Deltas, SubModelDeltas, delta_rows
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays, Groups


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

    All have the full shape P, and are made of the sent arrays when they are asked for, whole or some rows.
    `held` are the coordinates that the client trained, `coverage` those that count in the mean (a transform
    may widen it); `delta` is zero, or a transform's value, where not held. `order` says where the client's
    channels were moved to, if they were (place i has channel `order[g][i]`).
    """

    source: ClientUpdate
    delta: Arrays
    coverage: UpdateCoverage
    held: UpdateCoverage
    order: Order = field(default_factory=dict)

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        """Rows of the delta."""
        return delta_rows(self.delta, name, start, stop)

    def covered(self, name: str, start: int, stop: int) -> DeltaRows:
        """Rows of the delta, where they count."""
        return self.part(name, start, stop).within(self.coverage.reach(name).rows(start, stop)[1])

    def trained(self, name: str, start: int, stop: int) -> DeltaRows:
        """Rows of the delta, where the client holds them."""
        return self.part(name, start, stop).within(self.held.reach(name).rows(start, stop)[1])


@dataclass(frozen=True, eq=False)
class TransformContext:
    """What a transform may know beside the update: the model w, the channel map, the round's updates as sent.

    `ordered` says whether the channels of w were ranked before this round.
    """

    params: Arrays
    channel_map: ChannelMap
    sources: Sequence[ClientUpdate] = ()
    ordered: bool = False


class RoundUpdates(Sequence[GlobalUpdate]):
    """A round's updates in global coordinates, each made when it is first asked for.

    None holds arrays of its own, so a round of a thousand devices needs the memory of a few rows of each.
    """

    def __init__(self, sources: Sequence[ClientUpdate], make: Callable[[ClientUpdate], GlobalUpdate]) -> None:
        self.sources, self._make = tuple(sources), make
        self._known: dict[int, GlobalUpdate] = {}

    def _made(self, index: int) -> GlobalUpdate:
        if index not in self._known:
            self._known[index] = self._make(self.sources[index])
        return self._known[index]

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


class HeldCoordinates:
    """What sub-models hold of a model: found once for all whose sub-models are prefixes of one size."""

    def __init__(self, channel_map: ChannelMap) -> None:
        self.channel_map = channel_map
        self._known: dict[Any, UpdateCoverage] = {}

    def held(self, names: Set[str], spec: SubModelSpec) -> UpdateCoverage:
        """Of a sub-model whose parameters of these names were sent; `InvariantError` if it does not fit."""
        # Lists of channels differ from client to client, and would be kept for nothing.
        if not all(isinstance(kept, int) for kept in spec.kept.values()):
            return _held(names, spec, self.channel_map)
        key = (frozenset(names), *sorted(spec.kept.items()))
        if key not in self._known:
            found = _held(names, spec, self.channel_map)
            self._known[key] = UpdateCoverage(self.channel_map, cache(found.reach))
        return self._known[key]


def to_global(
    update: ClientUpdate, channel_map: ChannelMap, holdings: HeldCoordinates | None = None
) -> GlobalUpdate:
    """An update in the coordinates of the full model; layers not returned are not held.

    `holdings` spares finding again what others hold too. `InvariantError` for names or a sub-model that do
    not fit the map; shapes are looked at as they are read.
    """
    arrays = update.groups["model"]
    if odd := sorted(set(arrays) - channel_map.parameters.keys()):
        raise InvariantError(f"parameters {odd[:3]} are not in the channel map")
    held = (holdings or HeldCoordinates(channel_map)).held(set(arrays), update.spec)
    return GlobalUpdate(update, SubModelDeltas(arrays, held, channel_map), held, held)


def group_to_global(
    update: GlobalUpdate, group: str, channel_map: ChannelMap
) -> tuple[Arrays, UpdateCoverage]:
    """A group that came beside the model, in global coordinates and in the order that the update was given.

    Only arrays that bear a parameter's name; none where the client sent none.
    """
    sent = update.source.groups.get(group, {})
    named = {name: layout for name, layout in channel_map.parameters.items() if name in sent}
    if len(named) < len(channel_map.parameters):
        channel_map = ChannelMap.model_construct(groups=channel_map.groups, parameters=named)
    delta, held = _placed(sent, update.source.spec, channel_map)
    return (delta.moved(update.order), held.moved(update.order)) if update.order else (delta, held)


def _placed(arrays: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> tuple[Deltas, UpdateCoverage]:
    held = _held(set(arrays), spec, channel_map)
    return SubModelDeltas(arrays, held, channel_map), held


def _held(names: Set[str], spec: SubModelSpec, channel_map: ChannelMap) -> UpdateCoverage:
    check(spec, channel_map)

    def find(name: str) -> Reach:
        layout = channel_map.parameters[name]
        return reach_of(layout, spec) if name in names else nowhere(layout.shape)

    return UpdateCoverage(channel_map, find)
