"""Exact sums of some of a round's updates, made by another process or at a site.

A sum is two groups of whole numbers in doubles, of the full shapes P: multiples of the units of
`accumulator`. What updates cover is no part of it: that follows from their sub-models.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.zstd import Zstd
from edge_server.strategy.aggregation.accumulator import MAX_UPDATES, MAX_WEIGHT, ExactAccumulator, Scratch
from edge_server.strategy.aggregation.array_stores import ArrayStore, NewArrayStore
from edge_server.strategy.aggregation.blocks import all_blocks
from edge_server.strategy.aggregation.transforms import Transform, transform_updates
from edge_server.strategy.aggregation.updates import ClientUpdate, GlobalUpdate, SummedArrays
from schemas.errors import InvariantError, PeerError, Reason
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import AnyArray, ComputedArrays, Groups, kind_of, rows_of
from schemas.tensors.files import FileGroups

COARSE, FINE = "coarse", "fine"  # the groups of a sum
WHOLE = np.dtype(np.float64)
MAX_WHOLE = 2.0**53  # whole numbers from here on are not exact


@dataclass(frozen=True, eq=False)
class PartialSum:
    """The sum of m_k delta_k of `members`, {client: m_k}, as the groups `coarse` and `fine`."""

    members: Mapping[str, int]
    groups: Groups


def sum_updates(
    updates: Sequence[GlobalUpdate], counts: Sequence[int], channel_map: ChannelMap, *, keep: NewArrayStore
) -> PartialSum:
    """Add updates with their whole weights, a few rows at a time; raises `InvariantError` for too many."""
    check_size(counts)
    stores = {COARSE: keep(), FINE: keep()}
    for name, start, stop in all_blocks(channel_map.parameters):
        shape = channel_map.parameters[name].shape
        adding = ExactAccumulator(name, start, stop, shape or (1,))
        for update, count in zip(updates, counts, strict=True):
            adding.add(update, np.float64(count))
        _put(stores, name, shape, start, adding)
    members = {update.source.client: count for update, count in zip(updates, counts, strict=True)}
    return PartialSum(members, stores)


def sum_clients(
    sources: Sequence[ClientUpdate],
    weights: Mapping[str, int],
    transforms: Sequence[Transform],
    channel_map: ChannelMap,
    *,
    keep: NewArrayStore,
) -> PartialSum:
    """Add clients' updates as they were sent, after transforms that look at one update alone."""
    updates = transform_updates(transforms, sources, {}, channel_map, ordered=False)
    counts = [weights[source.client] for source in updates.sources]
    return sum_updates(updates, counts, channel_map, keep=keep)


def _put(
    stores: Mapping[str, ArrayStore], name: str, shape: tuple[int, ...], start: int, adding: ExactAccumulator
) -> None:
    for group, rows in zip((COARSE, FINE), adding.carry_over(), strict=True):
        stores[group].put_rows(name, (WHOLE, shape), start, rows)


class RunningSum:
    """The sum of clients' updates that come one after the other; 16 bytes of memory for each number of P.

    `transforms` look at one update alone.
    """

    def __init__(self, transforms: Sequence[Transform], channel_map: ChannelMap) -> None:
        self._transforms, self._channel_map = transforms, channel_map
        self.members: dict[str, int] = {}
        places = list(all_blocks(channel_map.parameters))
        sizes = [math.prod((stop - start, *self._shape(name)[1:])) for name, start, stop in places]
        scratch = Scratch(max(sizes, default=0))
        shapes = {name: self._shape(name) or (1,) for name in channel_map.parameters}
        self._rows = {place: ExactAccumulator(*place, shapes[place[0]], scratch) for place in places}

    def _shape(self, name: str) -> tuple[int, ...]:
        return self._channel_map.parameters[name].shape

    def add(self, sources: Sequence[ClientUpdate], weights: Mapping[str, int]) -> None:
        """Add updates with their whole weights; raises `InvariantError` for too many, or for one twice."""
        updates = transform_updates(self._transforms, sources, {}, self._channel_map, ordered=False)
        counts = {source.client: weights[source.client] for source in updates.sources}
        members = merged_members([PartialSum(self.members, {}), PartialSum(counts, {})])
        check_size([*members.values()])
        for adding in self._rows.values():
            for update in updates:
                adding.add(update, np.float64(counts[update.source.client]))
            adding.forget_index_sets()
        self.members = members

    def written(self, keep: NewArrayStore) -> PartialSum:
        stores = {COARSE: keep(), FINE: keep()}
        for (name, start, _), adding in self._rows.items():
            _put(stores, name, self._shape(name), start, adding)
        return PartialSum(self.members, stores)


def add_sums(sums: Sequence[PartialSum], channel_map: ChannelMap) -> PartialSum:
    """The sum of sums of different members, computed when it is read."""
    kinds = {name: (WHOLE, layout.shape) for name, layout in channel_map.parameters.items()}

    def rows(group: str, name: str, start: int, stop: int) -> NDArray[np.float64]:
        return np.asarray(sum(rows_of(part.groups[group], name, start, stop) for part in sums))

    groups = {group: ComputedArrays(kinds, partial(rows, group)) for group in (COARSE, FINE)}
    return PartialSum(merged_members(sums), groups)


def merged_members(sums: Iterable[PartialSum]) -> dict[str, int]:
    """The members of all sums; raises `InvariantError` for one that is in two of them."""
    members: dict[str, int] = {}
    for part in sums:
        if twice := members.keys() & part.members.keys():
            raise InvariantError(f"{sorted(twice)[:3]} are in two sums of one round")
        members |= part.members
    return members


def check_size(counts: Sequence[int]) -> None:
    """Raise `InvariantError` for more updates or weight than an exact sum can hold."""
    if len(counts) > MAX_UPDATES or sum(counts) > MAX_WEIGHT:
        raise InvariantError(
            f"{len(counts)} updates of {sum(counts)} examples are more than one round can add up: "
            f"at most {MAX_UPDATES} of {MAX_WEIGHT}"
        )


def check_sum(groups: Groups, channel_map: ChannelMap) -> None:
    """Raise `PeerError` unless these are whole numbers of the full shapes, below 2^53."""
    if groups.keys() != {COARSE, FINE}:
        raise PeerError(f"a sum has the groups {COARSE} and {FINE}, got {sorted(groups)[:5]}")
    for group, arrays in groups.items():
        if arrays.keys() != channel_map.parameters.keys():
            raise PeerError(f"the sum's group '{group}' has other parameters than the model")
        for name in channel_map.parameters:
            if kind_of(arrays, name) != (WHOLE, channel_map.parameters[name].shape):
                raise PeerError(f"'{name}' of the sum has the wrong type or shape")
    for name, start, stop in all_blocks(channel_map.parameters):
        for group, arrays in groups.items():
            rows = rows_of(arrays, name, start, stop)
            if not bool(((np.abs(rows) < MAX_WHOLE) & (np.rint(rows) == rows)).all()):
                raise PeerError(f"'{name}' of the sum's group '{group}' has other than whole numbers")


def without_arrays(update: ClientUpdate) -> ClientUpdate:
    """The update, of whose model only names and kinds are known: its arrays are in a sum."""
    kinds = {name: kind_of(update.groups["model"], name) for name in update.groups["model"]}
    return replace(update, groups={**update.groups, "model": SummedArrays(kinds)})


# Partial sums as compressed files, for slow links.
FINE_BITS = 35  # a unit `COARSE` is this many bits above a unit `FINE`
LOW, HIGH = 5, 7  # planes of the magnitude's lowest bits, and of the rest with the sign
BYTE = np.dtype(np.uint8)
LEVEL = 3
HEADER_BYTES, TENSOR_BYTES = 64 * 1024, 300

Whole = NDArray[np.int64]


def write_sum(file: BinaryIO, arrays: Mapping[str, AnyArray]) -> str:
    """Write the planes of a sum, compressed; returns the file's sha256 in hex."""
    return Zstd(LEVEL).write(file, arrays)


def planes_of(groups: Groups) -> Groups:
    """The planes of a sum, made when they are written."""
    kinds = {name: (BYTE, kind_of(groups[COARSE], name)[1]) for name in groups[COARSE]}

    def rows(plane: int, name: str, start: int, stop: int) -> AnyArray:
        low, high = _split(*(rows_of(groups[group], name, start, stop) for group in (COARSE, FINE)))
        number, shift = (low, plane) if plane < LOW else (high, plane - LOW)
        return ((number >> (8 * shift)) & 0xFF).astype(BYTE)

    return {_name(plane): ComputedArrays(kinds, partial(rows, plane)) for plane in range(LOW + HIGH)}


def _split(coarse: AnyArray, fine: AnyArray) -> tuple[Whole, Whole]:
    """The lowest bits of the magnitude, and the rest above the sign."""
    high, low = coarse.astype(np.int64), fine.astype(np.int64)
    carry = low >> FINE_BITS
    high, low = high + carry, low - (carry << FINE_BITS)
    negative = high < 0
    rest = low > 0
    high = np.where(negative, -high - rest, high)
    low = np.where(negative & rest, (1 << FINE_BITS) - low, low)
    return low, (high << 1) | negative


def read_sum(path: Path, channel_map: ChannelMap) -> Groups:
    """The groups of an unpacked sum, read in blocks; raises `PeerError` unless it has planes of the model."""
    planes = FileGroups(path)
    if planes.keys() != {_name(plane) for plane in range(LOW + HIGH)}:
        raise PeerError("the file is not that of a sum", reason=Reason.WRONG_SUM)
    for name, layout in channel_map.parameters.items():
        for arrays in planes.values():
            if name not in arrays or kind_of(arrays, name) != (BYTE, layout.shape):
                raise PeerError(f"the sum has no bytes of '{name}' in its shape", reason=Reason.WRONG_SUM)
    kinds = {name: (WHOLE, layout.shape) for name, layout in channel_map.parameters.items()}

    def rows(group: str, name: str, start: int, stop: int) -> AnyArray:
        def number(first: int, count: int) -> Whole:
            parts = (rows_of(planes[_name(first + n)], name, start, stop) for n in range(count))
            return np.asarray(sum(part.astype(np.int64) << (8 * n) for n, part in enumerate(parts)))

        high = number(LOW, HIGH)
        magnitude = high >> 1 if group == COARSE else number(0, LOW)
        return np.where(high & 1, -magnitude, magnitude).astype(WHOLE)

    return {group: ComputedArrays(kinds, partial(rows, group)) for group in (COARSE, FINE)}


def most_sum_bytes(channel_map: ChannelMap) -> int:
    """Most bytes of a sum's file, compressed or not."""
    shapes = [layout.shape for layout in channel_map.parameters.values()]
    numbers = sum(math.prod(shape) for shape in shapes)
    tensors = TENSOR_BYTES * len(shapes)
    return (numbers + tensors) * (LOW + HIGH) * 129 // 128 + HEADER_BYTES


def _name(plane: int) -> str:
    return f"p{plane:02d}"
