"""The segments of nested sub-models: a segment is the coordinates that the same sub-models hold.

In nested tiers a segment is the increment of a tier over the next smaller one; where tiers cut different
layers (ResNet56 of ATTENDING), it is what a set of tiers shares. Masks are agreed per segment, so that they
cancel among exactly its holders.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.slicing import check_spec, cut_axes, extract
from schemas.errors import ConfigError, PeerError
from schemas.security.secure_aggregation import MaskedSegment, MaskingTerms
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors.blobs import Arrays
from schemas.values import Reason

# Per parameter, in its full shape: the segment of each coordinate; -1 where no sub-model holds it.
Labels = Mapping[str, NDArray[np.int16]]


def distinct(specs: Sequence[SubModelSpec]) -> tuple[SubModelSpec, ...]:
    """The distinct sub-models in a canonical order; `ConfigError` for one that is not a prefix."""
    for spec in specs:
        chosen = [group for group, kept in spec.kept.items() if not isinstance(kept, int)]
        if chosen:
            raise ConfigError(
                f"secure aggregation needs nested sub-models: of group '{chosen[0]}' single channels are "
                'chosen. Set [strategy] pruner = "index"'
            )
    written = {spec.model_dump_json(): spec for spec in specs}
    return tuple(written[text] for text in sorted(written))


def partition(
    specs: Sequence[SubModelSpec], channel_map: ChannelMap
) -> tuple[tuple[MaskedSegment, ...], Labels]:
    """The segments of these sub-models, and the segment of each coordinate."""
    for spec in specs:
        check_spec(spec, channel_map)
    held = {name: _holders(layout, specs) for name, layout in channel_map.parameters.items()}
    patterns = sorted({int(pattern) for bits in held.values() for pattern in np.unique(bits)} - {0})
    sizes = [sum(int((bits == pattern).sum()) for bits in held.values()) for pattern in patterns]
    segments = tuple(
        MaskedSegment(holders=tuple(i for i in range(len(specs)) if pattern >> i & 1), size=size)
        for pattern, size in zip(patterns, sizes, strict=True)
    )
    places = np.array([0, *patterns], np.uint64)
    labels = {name: (np.searchsorted(places, bits) - 1).astype(np.int16) for name, bits in held.items()}
    return segments, labels


def _holders(layout: ParameterLayout, specs: Sequence[SubModelSpec]) -> NDArray[np.uint64]:
    """Bit i of each coordinate is 1 if sub-model i holds it."""
    bits = np.zeros(layout.shape, np.uint64)
    for index, spec in enumerate(specs):
        cut = cut_axes(layout, spec)
        kept = [cut.get(axis, np.arange(length)) for axis, length in enumerate(layout.shape)]
        bits[np.ix_(*kept)] |= np.uint64(1 << index)
    return bits


def checked_labels(terms: MaskingTerms, channel_map: ChannelMap) -> Labels:
    """The segment of each coordinate; `PeerError` unless the terms' segments are those of its sub-models."""
    segments, labels = partition(terms.specs, channel_map)
    if segments != terms.segments:
        raise PeerError("the segments to mask are not those of the sub-models", reason=Reason.WRONG_SHAPE)
    return labels


def split(
    arrays: Arrays, spec: SubModelSpec, labels: Labels, channel_map: ChannelMap
) -> dict[int, NDArray[Any]]:
    """A sub-model's arrays as one vector [size] per segment that it holds."""
    own = extract(labels, spec, channel_map)
    names = sorted(channel_map.parameters)
    held = sorted({int(segment) for name in names for segment in np.unique(own[name])})
    return {index: np.concatenate([arrays[name][own[name] == index] for name in names]) for index in held}


def join(vectors: Mapping[int, NDArray[Any]], labels: Labels) -> dict[str, NDArray[Any]]:
    """The full arrays with the values of these segments, 0 elsewhere."""
    full = {name: np.zeros(label.shape) for name, label in labels.items()}
    for index, vector in vectors.items():
        start = 0
        for name in sorted(labels):
            mine = labels[name] == index
            count = int(mine.sum())
            full[name][mine] = vector[start : start + count]
            start += count
    return full
