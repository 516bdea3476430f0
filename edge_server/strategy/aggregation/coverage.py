"""What the updates of a round reach of the model, each and together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import Places, Reach, everywhere, key_of, listed
from edge_client.pruning.slicing import check, moved_axes
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec

Order = Mapping[str, Sequence[int]]


def checked_order(order: Order, channel_map: ChannelMap) -> Order:
    """The order in little memory; `InvariantError` unless it names every channel of its groups once."""
    check(SubModelSpec(kept={group: tuple(map(int, old)) for group, old in order.items()}), channel_map)
    for group, old in order.items():
        if len(old) != channel_map.groups[group].channels:
            raise InvariantError(f"{group!r}: expected all {channel_map.groups[group].channels} channels")
    return {group: np.array(old, np.min_scalar_type(len(old))) for group, old in order.items()}  # type: ignore[misc]


def inverse_axes(layout: ParameterLayout, order: Order) -> dict[int, NDArray[np.intp]]:
    """Per axis that is reordered, the place that each old position goes to."""
    return {axis: np.argsort(old) for axis, old in moved_axes(layout, order).items()}


class UpdateCoverage(Mapping[str, NDArray[np.bool_]]):
    """What an update reaches of every parameter: as a `Reach`, or, asked for by name, as a mask."""

    def __init__(self, channel_map: ChannelMap, find: Callable[[str], Reach]) -> None:
        self.channel_map, self.reach = channel_map, find

    def __getitem__(self, name: str) -> NDArray[np.bool_]:
        return self.reach(name).mask.reshape(self.channel_map.parameters[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.channel_map.parameters)

    def __len__(self) -> int:
        return len(self.channel_map.parameters)

    def moved(self, order: Order) -> UpdateCoverage:
        """Where they are once channels have been put in this order."""
        layouts = self.channel_map.parameters
        return UpdateCoverage(
            self.channel_map, lambda name: self.reach(name).moved(inverse_axes(layouts[name], order))
        )


def full_coverage(channel_map: ChannelMap) -> UpdateCoverage:
    """Every coordinate of every parameter."""
    return UpdateCoverage(channel_map, lambda name: everywhere(channel_map.parameters[name].shape))


def intersection(reaches: Sequence[Reach]) -> Reach:
    """The coordinates that all of them have."""
    axes = zip(*(one.axes for one in reaches), strict=True)
    return Reach(reaches[0].shape, tuple(_shared(places) for places in axes))


def _shared(places: Iterable[Places]) -> Places:
    first, *others = places
    if all(isinstance(one, slice) for one in (first, *others)):
        low = max(one.start for one in (first, *others))  # type: ignore[union-attr]
        return slice(low, max(low, min(one.stop for one in (first, *others))))  # type: ignore[union-attr]
    kept = np.unique(listed(first))
    for one in others:
        kept = np.intersect1d(kept, listed(one))
    return kept


def sum_weights(reaches: Sequence[Reach], weights: Sequence[float]) -> NDArray[np.float64]:
    """Per coordinate the sum of the weights of those that reach it, added in their order.

    It broadcasts to the full shape: one number where all reach everything. Positions that the same ones
    reach share one number until the end, so many alike cost little.
    """
    # Those of one sub-model are often one and the same, and looked at once.
    distinct = {id(one): one for one in reaches}
    if all(one.whole for one in distinct.values()):
        return np.array(sum(map(float, weights), 0.0))
    alike = list(distinct.values())
    axes = [_classes([one.axes[axis] for one in alike], n) for axis, n in enumerate(alike[0].shape)]
    grid = np.zeros([int(ids.max(initial=-1)) + 1 for ids, _ in axes])
    cells = {key: np.ix_(*(members[k] for _, members in axes)) for k, key in enumerate(distinct)}
    for one, weight in zip(reaches, weights, strict=True):
        grid[cells[id(one)]] += weight
    return grid[np.ix_(*(ids for ids, _ in axes))]


def _classes(all_places: Sequence[Places], length: int) -> tuple[NDArray[np.intp], list[NDArray[np.intp]]]:
    """The class of every position, those being alike that lie in the same lists; and each list's classes."""
    alike: dict[Any, Places] = {key_of(places): places for places in all_places}
    ids = np.zeros(length, np.intp)
    for places in alike.values():
        split = 2 * ids
        split[places] += 1
        ids = np.unique(split, return_inverse=True)[1]
    members = {key: np.unique(ids[places]) for key, places in alike.items()}
    return ids, [members[key_of(places)] for places in all_places]
