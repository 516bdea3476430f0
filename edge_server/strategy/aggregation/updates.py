"""A client's update as it was sent, and in global coordinates, on which aggregation works."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any, overload

from edge_client.pruning.index_sets import IndexSet, check_spec, empty_index_set, submodel_index_set
from edge_client.system.plugins import Traits
from edge_server.strategy.aggregation.deltas import DeltaRows, SubModelDeltas, UpdateCoverage, delta_rows
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, Arrays, Groups, KnownArrays


@dataclass(frozen=True)
class ClientUpdate:
    """An update as received, in the coordinates of its sub-model; `groups["model"]` is w_k - w.

    `metrics` holds the device's measurements (`TrainingMetrics`, without unknown values), `staleness`
    (aggregations since the model that it trained; 0 in synchronous rounds), and `ratio` (the pruning ratio
    of its task).
    """

    client: str
    spec: SubModelSpec
    groups: Groups
    examples: int
    metrics: Mapping[str, float] = field(default_factory=dict)


def has_trained(updates: Iterable[ClientUpdate]) -> bool:
    """Whether any of a round's devices trained the model."""
    return any(update.groups.get("model") for update in updates)


class SummedArrays(KnownArrays):
    """The parameters of an update that a sum contains already: names and kinds, but no numbers."""

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        raise InvariantError(f"'{name}' is part of a sum and cannot be read by itself")


@dataclass(frozen=True)
class GlobalUpdate:
    """An update in global coordinates, of the full shapes P, computed from the sent arrays on demand.

    `held` are the coordinates that the client trained, `coverage` those that count in the mean (a transform
    may widen it); elsewhere `delta` is zero, or a transform's value. `decay` says how fast the model shrinks
    in coordinates that are among `decaying` but not held (`decay_missing`).
    """

    source: ClientUpdate
    delta: Arrays
    coverage: UpdateCoverage
    held: UpdateCoverage
    decay: float = 0.0
    decaying: UpdateCoverage | None = None

    @property
    def is_summed(self) -> bool:
        return isinstance(self.source.groups["model"], SummedArrays)

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        return delta_rows(self.delta, name, start, stop)

    def covered_rows(self, name: str, start: int, stop: int) -> DeltaRows:
        return self.part(name, start, stop).within(self.coverage.index_set(name).slice_rows(start, stop)[1])

    def trained_rows(self, name: str, start: int, stop: int) -> DeltaRows:
        return self.part(name, start, stop).within(self.held.index_set(name).slice_rows(start, stop)[1])


@dataclass(frozen=True, eq=False)
class TransformContext:
    """What a transform may use besides the update: the model w, the channel map, the round's updates as sent.

    `ordered`: the channels of w were ranked before this round.
    """

    params: Arrays
    channel_map: ChannelMap
    sources: Sequence[ClientUpdate] = ()
    ordered: bool = False


@dataclass(frozen=True)
class TransformTraits(Traits):
    """What a transform does to updates.

    `scales` a client's step or model; `counts_steps`: how often a gradient counts in local SGD, with the
    local `momentum` as its option; `is_single`: looks at one update alone, neither at the model nor at the
    round's other updates; `moves_channels`, which is no part of a client's step.
    """

    scales: bool = False
    counts_steps: bool = False
    is_single: bool = False
    moves_channels: bool = False


@dataclass(frozen=True)
class CombinerTraits(Traits):
    """What a combiner takes on trust, whether weights decide which values count, and whether it is a sum.

    A sum over clients is divided by numbers known beforehand (differential privacy).
    """

    trusts: str = ""
    takes_weights: bool = True
    is_sum: bool = False


ROBUST = CombinerTraits(takes_weights=False)


class RoundUpdates(Sequence[GlobalUpdate]):
    """A round's updates in global coordinates, each made on first access.

    They hold no arrays of their own, so a round of a thousand devices needs memory for a few rows of each.
    """

    def __init__(self, sources: Sequence[ClientUpdate], make: Callable[[ClientUpdate], GlobalUpdate]) -> None:
        self.sources, self._make = tuple(sources), make
        self._known: dict[int, GlobalUpdate] = {}

    def __len__(self) -> int:
        return len(self.sources)

    @overload
    def __getitem__(self, index: int) -> GlobalUpdate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[GlobalUpdate]: ...
    def __getitem__(self, index: int | slice) -> GlobalUpdate | Sequence[GlobalUpdate]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        if index not in self._known:
            self._known[index] = self._make(self.sources[index])
        return self._known[index]


def is_statistic(name: str) -> bool:
    """Whether a parameter is a normalisation's running statistic, which is measured, not trained.

    Statistics are only averaged: scaling or momentum could push a variance below 0.
    """
    return name.rpartition(".")[2] in ("running_mean", "running_var")


def sources_of(updates: Sequence[GlobalUpdate]) -> Sequence[ClientUpdate]:
    """The updates as sent, without converting any to global coordinates."""
    return updates.sources if isinstance(updates, RoundUpdates) else [update.source for update in updates]


class HeldCoordinates:
    """The coordinates that sub-models hold, computed once for all prefix sub-models of one size."""

    def __init__(self, channel_map: ChannelMap) -> None:
        self.channel_map = channel_map
        self._known: dict[Any, UpdateCoverage] = {}

    def coverage_of(self, names: Set[str], spec: SubModelSpec) -> UpdateCoverage:
        """The coordinates of a sub-model of which these parameters were sent; `InvariantError` if invalid."""
        # Lists of channels differ from client to client, so caching them is useless.
        if not all(isinstance(kept, int) for kept in spec.kept.values()):
            return _find_coverage(names, spec, self.channel_map)
        key = (frozenset(names), *sorted(spec.kept.items()))
        if key not in self._known:
            find = cache(_find_coverage(names, spec, self.channel_map).index_set)
            self._known[key] = UpdateCoverage(self.channel_map, find)
        return self._known[key]


def to_global(
    update: ClientUpdate, channel_map: ChannelMap, holdings: HeldCoordinates | None = None
) -> GlobalUpdate:
    """An update in the coordinates of the full model; layers not returned are not held.

    `holdings` caches the coordinates of equal sub-models. Raises `InvariantError` for names or a sub-model
    that do not fit the map; shapes are checked when they are read.
    """
    arrays = update.groups["model"]
    if odd := sorted(set(arrays) - channel_map.parameters.keys()):
        raise InvariantError(f"parameters {odd[:3]} are not in the channel map")
    held = (holdings or HeldCoordinates(channel_map)).coverage_of(set(arrays), update.spec)
    return GlobalUpdate(update, SubModelDeltas(arrays, held, channel_map), held, held)


def group_to_global(
    update: GlobalUpdate, group: str, channel_map: ChannelMap
) -> tuple[Arrays, UpdateCoverage]:
    """The arrays of a group sent with the model that are named after parameters, in global coordinates."""
    sent = update.source.groups.get(group, {})
    named = {name: layout for name, layout in channel_map.parameters.items() if name in sent}
    if len(named) < len(channel_map.parameters):
        channel_map = ChannelMap.model_construct(groups=channel_map.groups, parameters=named)
    held = _find_coverage(set(sent), update.source.spec, channel_map)
    return SubModelDeltas(sent, held, channel_map), held


def _find_coverage(names: Set[str], spec: SubModelSpec, channel_map: ChannelMap) -> UpdateCoverage:
    check_spec(spec, channel_map)

    def find(name: str) -> IndexSet:
        layout = channel_map.parameters[name]
        return submodel_index_set(layout, spec) if name in names else empty_index_set(layout.shape)

    return UpdateCoverage(channel_map, find)
