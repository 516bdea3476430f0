"""Models on their way to devices: the codecs that a strategy names, and frames.

A model is sent as frames: a whole model, then a delta from each model version to the next. A frame is the
groups of an encoded model (`decoding`). The codecs encode the numbers of a delta. Without a number codec, and
in parameters of fewer than two axes, a delta is uint32: the difference of the bit patterns modulo 2^32, which
is lossless, with zeros for unchanged numbers.

The next delta corrects the error of the last one, so errors do not add up. Both sides add the same float32
numbers in the same order, so the server knows the devices' models exactly.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edge_client.compression import chain, decoding
from edge_client.compression.quantization import Fp16, Int8, NumberCodec
from edge_client.compression.zstd import Zstd
from schemas import errors, strategy
from schemas.messages.tasks import MAX_FRAMES
from schemas.tensors.arrays import (
    AnyArray,
    Arrays,
    ComputedArrays,
    Groups,
    KnownArrays,
    blocks,
    kind_of,
    rows_of,
)

BITS = np.dtype("<u4")
CODES = (BITS, decoding.FLOAT, np.dtype("<f2"), np.dtype("i1"))  # the types of codes in a delta
NEAR = 0.25  # share of the sum of squares up to which a delta is worth sending


def changes(params: Arrays, before: Arrays, number: NumberCodec | None) -> Groups:
    """The delta from `before` to `params`, computed when read."""
    kinds = {name: kind_of(params, name) for name in params}
    coded = {name: kind for name, kind in kinds.items() if number is not None and decoding.is_coded(kind[1])}
    encoded = chain.in_codes(number, ComputedArrays(coded, partial(_difference, params, before)), None)
    codes = encoded[decoding.MODEL]
    types = {n: kind_of(codes, n) if n in coded else (BITS, shape) for n, (_, shape) in kinds.items()}

    def make(name: str, start: int, stop: int) -> AnyArray:
        if name in coded:
            return rows_of(codes, name, start, stop)
        return _bits(params, name, start, stop) - _bits(before, name, start, stop)

    return {**encoded, decoding.MODEL: ComputedArrays(types, make)}


def near(params: Arrays, before: Arrays) -> bool:
    """Whether the delta from `before` is small compared with the model; False if a number is not finite."""
    if {name: kind_of(params, name) for name in params} != {name: kind_of(before, name) for name in before}:
        return False
    whole = change = 0.0
    for name in params:
        for block in blocks(kind_of(params, name)):
            with np.errstate(over="ignore", invalid="ignore"):
                whole += _squares(rows_of(params, name, *block))
                change += _squares(_difference(params, before, name, *block))
    return change <= NEAR * whole < np.inf


def added_up(frames: Sequence[Groups]) -> Groups:
    """The sum of frames, the whole model first, as `model`, with the other groups of the last frame.

    Arrays are computed when read; raises `PeerError` for frames that do not fit each other.
    """
    model = decoding.decode_groups(frames[0])[decoding.MODEL]
    for frame in frames[1:]:
        model = _Changed(model, frame)
    others = {
        name: arrays for name, arrays in frames[-1].items() if name not in (decoding.MODEL, *decoding.PARTS)
    }
    return {decoding.MODEL: model, **others}


class _Changed(KnownArrays):
    """The parameters after a delta."""

    def __init__(self, before: Arrays, frame: Groups) -> None:
        if decoding.MODEL not in frame or set(frame[decoding.MODEL]) != set(before):
            raise errors.PeerError("a frame changes other parameters than those before it")
        self._before, self._codes, self._numbers = before, frame[decoding.MODEL], decoding.Decoded(frame)
        scales = frame.get(decoding.SCALES, {})
        super().__init__({name: (decoding.FLOAT, kind_of(self._codes, name)[1]) for name in self._codes})
        for name in before:
            if kind_of(before, name) != self.kind(name):
                raise errors.PeerError(f"a frame does not fit '{name}', which is {kind_of(before, name)}")
            if kind_of(self._codes, name)[0] not in CODES:
                raise errors.PeerError(f"a frame has {kind_of(self._codes, name)[0]} for '{name}'")
            if name in scales and kind_of(scales, name) != (decoding.SCALE_TYPE, self.kind(name)[1][:1]):
                raise errors.PeerError(f"a frame's scales do not fit '{name}'")

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        if kind_of(self._codes, name)[0] == BITS:
            changed = _bits(self._before, name, start, stop) + rows_of(self._codes, name, start, stop)
            return np.asarray(changed).view(decoding.FLOAT)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = self._numbers.rows(name, start, stop)
            return np.asarray(rows_of(self._before, name, start, stop) + numbers)


def _difference(params: Arrays, before: Arrays, name: str, start: int, stop: int) -> AnyArray:
    return np.asarray(rows_of(params, name, start, stop) - rows_of(before, name, start, stop))


def _bits(arrays: Arrays, name: str, start: int, stop: int) -> AnyArray:
    return np.asarray(rows_of(arrays, name, start, stop), decoding.FLOAT).view(BITS)


def _squares(rows: AnyArray) -> float:
    return float(np.square(rows, dtype=np.float64).sum())


@dataclass(frozen=True)
class Differences:
    """Send deltas; one of `every` model versions is sent whole.

    A device also fetches the deltas that it missed: a new device fetches at most `every` frames.
    """

    every: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or not 2 <= self.every <= MAX_FRAMES:
            raise ValueError(f"every is a whole number from 2 to {MAX_FRAMES}, not {self.every}")


# In the order in which they may be named. No codec leaves numbers out: a model needs all.
DOWNLINK: Mapping[str, Callable[..., Any]] = {"delta": Differences, "fp16": Fp16, "int8": Int8, "zstd": Zstd}


@dataclass(frozen=True)
class DownlinkCodecs:
    """The down-link codecs of a strategy; without any, models are sent whole in float32."""

    delta: Differences | None = None
    number: NumberCodec | None = None
    pack: Zstd | None = None

    @property
    def whole(self) -> NumberCodec | None:
        """The number codec of whole models, with all levels: few levels suffice only for deltas."""
        return Int8() if self.delta and isinstance(self.number, Int8) else self.number


def make_downlink(named: Iterable[strategy.Component]) -> DownlinkCodecs:
    """The codecs of these components; raises `ConfigError` for unknown names or options, or a wrong order."""
    named = list(named)
    for component in named:
        if component.name not in DOWNLINK:
            hint = errors.nearest(component.name, DOWNLINK)
            raise errors.ConfigError(f"no codec of models is '{component.name}'{hint}", key="downlink")
    made = chain.make_codecs(named, DOWNLINK, "downlink")
    return DownlinkCodecs(made.get("delta"), made.get("fp16", made.get("int8")), made.get("zstd"))
