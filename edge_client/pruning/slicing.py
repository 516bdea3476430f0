"""Slices arrays to a sub-model and puts them back: `extract` and `expand`, without torch.

Global arrays have all channels; a sub-model's have the kept channels in the order of its spec.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, ParameterLayout, Segment, SubModelSpec

Arrays = Mapping[str, NDArray[Any]]
Positions = NDArray[np.intp]


def extract(arrays: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> dict[str, NDArray[Any]]:
    """Slice any global arrays to the channels of `spec`, without copying unchanged arrays.

    Raises `InvariantError` for a name, shape or spec that does not fit.
    """
    check_spec(spec, channel_map)
    cut = {}
    for name, array in arrays.items():
        layout = _layout(name, channel_map)
        expect_shape(name, array.shape, layout.shape)
        for axis, positions in cut_axes(layout, spec).items():
            array = np.take(array, positions, axis)
        cut[name] = array
    return cut


def expand(
    arrays: Arrays, spec: SubModelSpec, channel_map: ChannelMap
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.bool_]]]:
    """A sub-model's arrays in global coordinates, with zeros elsewhere, and the masks of their coordinates.

    Raises `InvariantError` for a name, shape or spec that does not fit.
    """
    check_spec(spec, channel_map)
    full: dict[str, NDArray[Any]] = {}
    coverage: dict[str, NDArray[np.bool_]] = {}
    for name, array in arrays.items():
        layout = _layout(name, channel_map)
        expect_shape(name, array.shape, _cut_shape(layout, spec))
        full[name], coverage[name] = _spread(array, layout, spec)
    return full, coverage


def permute(
    arrays: Arrays, order: Mapping[str, Sequence[int]], channel_map: ChannelMap
) -> dict[str, NDArray[Any]]:
    """Reorder channels in all arrays: channel i of a group becomes its old channel `order[group][i]`.

    The network's function does not change.
    """
    spec = SubModelSpec(kept={group: tuple(int(i) for i in places) for group, places in order.items()})
    check_spec(spec, channel_map)
    for group in spec.kept:
        expect_shape(group, (spec.count(group, 0),), (channel_map.groups[group].channels,))
    return extract(arrays, spec, channel_map)


def expected_shapes(spec: SubModelSpec, channel_map: ChannelMap) -> dict[str, tuple[int, ...]]:
    check_spec(spec, channel_map)
    return {name: _cut_shape(layout, spec) for name, layout in channel_map.parameters.items()}


def submodel_map(channel_map: ChannelMap, spec: SubModelSpec) -> ChannelMap:
    if not spec.kept:
        return channel_map
    counts = {name: spec.count(name, group.channels) for name, group in channel_map.groups.items()}

    def cut(segment: Segment) -> Segment:
        return segment.model_copy(update={"channels": counts[segment.group]}) if segment.group else segment

    parameters = {}
    for name, layout in channel_map.parameters.items():
        axes = {axis: tuple(map(cut, segments)) for axis, segments in layout.axes.items()}
        parameters[name] = ParameterLayout(shape=_cut_shape(layout, spec), axes=axes)
    groups = channel_map.groups.items()
    smaller = {name: group.model_copy(update={"channels": counts[name]}) for name, group in groups}
    return ChannelMap(groups=smaller, parameters=parameters)


def cut_axes(layout: ParameterLayout, spec: SubModelSpec) -> dict[int, Positions]:
    """The kept positions on each axis of a parameter that is cut or reordered."""
    return moved_axes(layout, spec.kept)


def moved_axes(layout: ParameterLayout, kept: Mapping[str, int | Sequence[int]]) -> dict[int, Positions]:
    """The old position of each new one on each axis that changes: see `permute`."""
    positions = {axis: _positions(segments, kept) for axis, segments in layout.axes.items()}
    same = {axis: np.arange(layout.shape[axis]) for axis in positions}
    return {axis: new for axis, new in positions.items() if not np.array_equal(new, same[axis])}


def check_spec(spec: SubModelSpec, channel_map: ChannelMap) -> None:
    """Raise `InvariantError` unless `spec` fits the map and keeps blocks whole."""
    if not spec.fits(channel_map):
        raise InvariantError(f"sub-model {dict(spec.kept)} names groups or channels that the map lacks")
    for name in spec.kept:
        group = channel_map.groups[name]
        blocks = np.array(spec.indices(name, group.channels)) // group.multiple
        runs = blocks[: len(blocks) // group.multiple * group.multiple].reshape(-1, group.multiple)
        if runs.size != blocks.size or (runs != runs[:, :1]).any():
            raise InvariantError(f"group {name!r}: expected whole blocks of {group.multiple} channels")


def _positions(segments: Sequence[Segment], kept: Mapping[str, int | Sequence[int]]) -> Positions:
    start, runs = 0, []
    for segment in segments:
        which = kept.get(segment.group, segment.channels) if segment.group else segment.channels
        channels = np.arange(which) if isinstance(which, int) else np.array(which, np.intp)
        runs.append(start + (channels[:, None] * segment.repeat + np.arange(segment.repeat)).ravel())
        start += segment.positions
    return np.concatenate(runs)


def _cut_shape(layout: ParameterLayout, spec: SubModelSpec) -> tuple[int, ...]:
    if not spec.kept:
        return layout.shape
    shape = list(layout.shape)
    for axis, segments in layout.axes.items():
        counts = (spec.count(s.group, s.channels) if s.group else s.channels for s in segments)
        shape[axis] = sum(s.repeat * count for s, count in zip(segments, counts, strict=True))
    return tuple(shape)


def _spread(
    array: NDArray[Any], layout: ParameterLayout, spec: SubModelSpec
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    cut = cut_axes(layout, spec)
    if not cut:
        return array, np.ones(layout.shape, bool)
    index = np.ix_(*(cut.get(axis, np.arange(length)) for axis, length in enumerate(layout.shape)))
    full, held = np.zeros(layout.shape, array.dtype), np.zeros(layout.shape, bool)
    full[index], held[index] = array, True
    return full, held


def _layout(name: str, channel_map: ChannelMap) -> ParameterLayout:
    if name not in channel_map.parameters:
        raise InvariantError(f"parameter {name!r} is not in the channel map")
    return channel_map.parameters[name]


def expect_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(expected):
        raise InvariantError(f"{name!r}: expected shape {tuple(expected)}, got {tuple(shape)}")
