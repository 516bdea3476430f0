"""A model in frames, as a film is sent: one that is whole, then what changes from each to the next.

A frame is the groups of an encoded model (`form`). In one of changes the numbers of a parameter are to be
added to those before, encoded as the codecs say. Where no codec changes numbers, and in parameters of fewer
than two axes always, it has uint32 in their place: how far their bits, read as whole numbers, are from those
before, modulo 2^32; so nothing is lost, and bits that stay are zeros.

What is off in one frame is part of what the next one has to change: errors do not add up. Both sides add the
same float32 numbers in the same order, so that the server knows to the bit what devices have.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from edge_client.compression.chain import in_codes
from edge_client.compression.decoding import (
    FLOAT,
    MODEL,
    PARTS,
    SCALE_TYPE,
    SCALES,
    Decoded,
    decoded,
    is_coded,
)
from edge_client.compression.quantization import NumberCodec
from schemas.errors import PeerError
from schemas.tensors.arrays import AnyArray, ComputedArrays, KnownArrays, blocks, kind_of, rows_of
from schemas.tensors.blobs import Arrays, Groups

BITS = np.dtype("<u4")
CODES = (BITS, FLOAT, np.dtype("<f2"), np.dtype("i1"))
"""What stands for the numbers of a frame of changes."""
NEAR = 0.25
"""Of the sum of squares: two models that are further apart have little in common."""


def changes(params: Arrays, before: Arrays, number: NumberCodec | None) -> Groups:
    """The frame that makes `params` of `before`, made when it is asked for."""
    kinds = {name: kind_of(params, name) for name in params}
    coded = {name: kind for name, kind in kinds.items() if number is not None and is_coded(kind[1])}
    encoded = in_codes(number, ComputedArrays(coded, partial(_less, params, before)), None)
    types = {
        name: kind_of(encoded[MODEL], name) if name in coded else (BITS, shape)
        for name, (_, shape) in kinds.items()
    }

    def make(name: str, start: int, stop: int) -> AnyArray:
        if name in coded:
            return rows_of(encoded[MODEL], name, start, stop)
        return _bits(params, name, start, stop) - _bits(before, name, start, stop)

    return {**encoded, MODEL: ComputedArrays(types, make)}


def near(params: Arrays, before: Arrays) -> bool:
    """Whether the change from `before` is small compared with the model; False if a number is not finite."""
    if {name: kind_of(params, name) for name in params} != {name: kind_of(before, name) for name in before}:
        return False
    whole = change = 0.0
    for name in params:
        for piece in blocks(kind_of(params, name)):
            with np.errstate(over="ignore", invalid="ignore"):
                whole += _squares(rows_of(params, name, *piece))
                change += _squares(_less(params, before, name, *piece))
    return change <= NEAR * whole < np.inf


def added_up(frames: Sequence[Groups]) -> Groups:
    """What frames, the whole one first, come to: their sum as `model`, the other groups of the last.

    Arrays are made when they are asked for; raises `PeerError` for frames that do not fit each other.
    """
    model = decoded(frames[0])[MODEL]
    for frame in frames[1:]:
        model = _Changed(model, frame)
    others = {name: arrays for name, arrays in frames[-1].items() if name not in (MODEL, *PARTS)}
    return {MODEL: model, **others}


class _Changed(KnownArrays):
    """The parameters after a frame of changes."""

    def __init__(self, before: Arrays, frame: Groups) -> None:
        if MODEL not in frame or set(frame[MODEL]) != set(before):
            raise PeerError("a frame changes other parameters than those before it")
        self._before, self._codes, self._numbers = before, frame[MODEL], Decoded(frame)
        scales = frame.get(SCALES, {})
        super().__init__({name: (FLOAT, kind_of(self._codes, name)[1]) for name in self._codes})
        for name in before:
            if kind_of(before, name) != self.kind(name):
                raise PeerError(f"a frame does not fit '{name}', which is {kind_of(before, name)}")
            if kind_of(self._codes, name)[0] not in CODES:
                raise PeerError(f"a frame has {kind_of(self._codes, name)[0]} for '{name}'")
            if name in scales and kind_of(scales, name) != (SCALE_TYPE, self.kind(name)[1][:1]):
                raise PeerError(f"a frame's scales do not fit '{name}'")

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Changed now."""
        if kind_of(self._codes, name)[0] == BITS:
            changed = _bits(self._before, name, start, stop) + rows_of(self._codes, name, start, stop)
            return np.asarray(changed).view(FLOAT)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers = self._numbers.rows(name, start, stop)
            return np.asarray(rows_of(self._before, name, start, stop) + numbers)


def _less(params: Arrays, before: Arrays, name: str, start: int, stop: int) -> AnyArray:
    return np.asarray(rows_of(params, name, start, stop) - rows_of(before, name, start, stop))


def _bits(arrays: Arrays, name: str, start: int, stop: int) -> AnyArray:
    return np.asarray(rows_of(arrays, name, start, stop), FLOAT).view(BITS)


def _squares(rows: AnyArray) -> float:
    return float(np.square(rows, dtype=np.float64).sum())
