"""Which coordinates of the model the updates of a round cover, each and together."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import AxisIndex, IndexSet, axis_key, full_index_set, to_array
from edge_client.pruning.slicing import check_spec, moved_axes
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec

Order = Mapping[str, Sequence[int]]


def checked_order(order: Order, channel_map: ChannelMap) -> Order:
    """The order in a small dtype; `InvariantError` unless it names every channel of its groups once."""
    check_spec(SubModelSpec(kept={group: tuple(map(int, old)) for group, old in order.items()}), channel_map)
    for group, old in order.items():
        if len(old) != channel_map.groups[group].channels:
            raise InvariantError(f"{group!r}: expected all {channel_map.groups[group].channels} channels")
    return {group: np.array(old, np.min_scalar_type(len(old))) for group, old in order.items()}  # type: ignore[misc]


class UpdateCoverage(Mapping[str, NDArray[np.bool_]]):
    """What an update covers of every parameter: as an `IndexSet`, or, asked for by name, as a mask."""

    def __init__(self, channel_map: ChannelMap, find: Callable[[str], IndexSet]) -> None:
        self.channel_map, self.index_set = channel_map, find

    def __getitem__(self, name: str) -> NDArray[np.bool_]:
        return self.index_set(name).mask.reshape(self.channel_map.parameters[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.channel_map.parameters)

    def __len__(self) -> int:
        return len(self.channel_map.parameters)

    def with_order(self, order: Order) -> "UpdateCoverage":

        def find(name: str) -> IndexSet:
            axes = moved_axes(self.channel_map.parameters[name], order)
            # Per reordered axis, the new position of each old one.
            return self.index_set(name).with_permutation(
                {axis: np.argsort(old) for axis, old in axes.items()}
            )

        return UpdateCoverage(self.channel_map, find)


def full_coverage(channel_map: ChannelMap) -> UpdateCoverage:
    return UpdateCoverage(channel_map, lambda name: full_index_set(channel_map.parameters[name].shape))


def intersection(index_sets: Sequence[IndexSet]) -> IndexSet:
    axes = zip(*(index_set.axes for index_set in index_sets), strict=True)
    return IndexSet(index_sets[0].shape, tuple(_intersect_places(places) for places in axes))


def _intersect_places(places: Iterable[AxisIndex]) -> AxisIndex:
    first, *others = places
    if all(isinstance(other, slice) for other in (first, *others)):
        low = max(part.start for part in (first, *others))  # type: ignore[union-attr]
        return slice(low, max(low, min(part.stop for part in (first, *others))))  # type: ignore[union-attr]
    kept = np.unique(to_array(first))
    for other in others:
        kept = np.intersect1d(kept, to_array(other))
    return kept


def sum_weights(index_sets: Sequence[IndexSet], weights: Sequence[float]) -> NDArray[np.float64]:
    """Per coordinate the sum of the weights of the index sets that contain it, added in their order.

    It broadcasts to the full shape: one number if all index sets are whole. Positions contained in the same
    index sets share one number until the end, which is cheap for many equal positions.
    """
    # Index sets of one sub-model are often the same object, and then looked at once.
    distinct = {id(index_set): index_set for index_set in index_sets}
    if all(index_set.whole for index_set in distinct.values()):
        return np.array(sum(map(float, weights), 0.0))
    unlike = list(distinct.values())
    shape = unlike[0].shape
    axes = [_classes([index_set.axes[axis] for index_set in unlike], n) for axis, n in enumerate(shape)]
    grid = np.zeros([int(ids.max(initial=-1)) + 1 for ids, _ in axes])
    cells = {key: np.ix_(*(members[k] for _, members in axes)) for k, key in enumerate(distinct)}
    for index_set, weight in zip(index_sets, weights, strict=True):
        grid[cells[id(index_set)]] += weight
    return grid[np.ix_(*(ids for ids, _ in axes))]


def _classes(all_places: Sequence[AxisIndex], length: int) -> tuple[NDArray[np.intp], list[NDArray[np.intp]]]:
    """The class of every position (positions in the same lists are one class), and each list's classes."""
    alike: dict[Any, AxisIndex] = {axis_key(places): places for places in all_places}
    ids = np.zeros(length, np.intp)
    for places in alike.values():
        split = 2 * ids
        split[places] += 1
        ids = np.unique(split, return_inverse=True)[1]
    members = {key: np.unique(ids[places]) for key, places in alike.items()}
    return ids, [members[axis_key(places)] for places in all_places]
