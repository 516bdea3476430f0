"""The format of an encoded update, and its decoder, which reads blocks of rows.

The group `model` holds codes instead of numbers; further groups hold what decoding needs:

    model          float32, float16 or int8 of the parameter's shape; the values [N] of a sparse one; or bytes
                   uint8 [R, B] that hold several codes each
    model.scales   float32 [R]: the factor of the codes of each row
    model.digits   uint32: the levels of codes that share bytes, then the shape of the parameter
    model.shapes   uint32: the shape of a sparse parameter
    model.counts   uint32 [R]: the number of values in each row of a sparse parameter
    model.columns  smallest unsigned type [N]: the columns of the values in their rows (`sparse`)
    model.left     the left factor of a change of low rank (`low_rank`), transposed [r, R]; the change itself
                   is not in `model`
    model.right    its right factor [r, ...]

Factors are encoded as `model` is, without being sparse: `model.left.scales`, `model.left.digits`.

A parameter of fewer than two axes (biases, gains, running statistics) is always float32: it is small, and an
error might make a variance negative.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from edge_client.compression import low_rank, quantization
from edge_client.compression.sparse import COUNTS, Sparse, to_dense
from schemas.tensors.arrays import AnyArray, Arrays, Groups, Kind, LazyArrays, kind_of, rows_of

MODEL = "model"
SCALES, DIGITS = f"{MODEL}.scales", f"{MODEL}.digits"
SHAPES, COUNTED, COLUMNS = (f"{MODEL}.{part}" for part in ("shapes", "counts", "columns"))
PARTS = (SCALES, DIGITS, SHAPES, COUNTED, COLUMNS)
LEFT, RIGHT = f"{MODEL}.left", f"{MODEL}.right"
SHAPE_TYPE, SCALE_TYPE, COUNT_TYPE = np.dtype("<u4"), np.dtype("<f4"), COUNTS
FLOAT = np.dtype("<f4")


def is_coded(shape: tuple[int, ...]) -> bool:
    """Whether parameters of this shape are encoded."""
    return len(shape) >= 2 and math.prod(shape) > 0


def decode_groups(groups: Groups) -> Groups:
    """The groups of an update with a decoded `model`, computed when read.

    Reading an update that was not validated may raise any exception.
    """
    model = groups.get(MODEL, {})
    halves = any(kind_of(model, name)[0] == np.float16 for name in model)
    coded = halves or any(part in groups for part in PARTS)
    if LEFT not in groups and not (MODEL in groups and coded):
        return groups
    others = (name for name in groups if name not in (MODEL, *PARTS) and not name.startswith((LEFT, RIGHT)))
    return {MODEL: Decoded(groups), **{name: groups[name] for name in others}}


def groups_of_factor(groups: Groups, side: str) -> Groups:
    """The groups of the factors `LEFT` or `RIGHT` under the names that `model` and its parts have."""
    names = (name for name in groups if name == side or name.startswith(f"{side}."))
    return {MODEL + name.removeprefix(side): groups[name] for name in names}


class Decoded(LazyArrays):
    """The decoded float32 parameters of encoded groups."""

    def __init__(self, groups: Groups) -> None:
        self._codes: Arrays = groups.get(MODEL, {})
        left, right = (groups_of_factor(groups, side) for side in (LEFT, RIGHT))
        self._left: Arrays = Decoded(left) if left else {}
        self._right: Arrays = Decoded(right) if right else {}
        self._scales = groups.get(SCALES, {})
        self._counts, self._columns = groups.get(COUNTED, {}), groups.get(COLUMNS, {})
        self._sparse = {name: shape_of(array) for name, array in groups.get(SHAPES, {}).items()}
        self._digits = {name: digits_of(array) for name, array in groups.get(DIGITS, {}).items()}

    def kind(self, name: str) -> Kind:
        if name in self._digits:
            return FLOAT, self._digits[name].shape
        if name in self._left:
            (_, rows), (_, *columns) = (kind_of(part, name)[1] for part in (self._left, self._right))
            return FLOAT, (rows, *columns)
        return FLOAT, self._sparse[name] if name in self._sparse else kind_of(self._codes, name)[1]

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        if name in self._left:
            return low_rank.product(self._left[name][:, start:stop].T, self._right[name])
        codes = self._dense(name, start, stop) if name in self._sparse else self._whole(name, start, stop)
        if name not in self._scales:
            return quantization.floats_of(codes)
        scales = rows_of(self._scales, name, start, stop)
        # In two steps: numpy multiplies different types at half the speed.
        numbers = codes.astype(FLOAT)
        with np.errstate(over="ignore", invalid="ignore"):
            numbers *= scales.reshape(-1, *[1] * (codes.ndim - 1))
        return numbers

    def is_scaled(self, name: str) -> bool:
        """Whether a row is its codes times its scale."""
        return name not in self._sparse and name in self._scales

    def coded_rows(self, name: str, start: int, stop: int) -> tuple[AnyArray, AnyArray]:
        return self._whole(name, start, stop), rows_of(self._scales, name, start, stop)

    def _whole(self, name: str, start: int, stop: int) -> AnyArray:
        codes = rows_of(self._codes, name, start, stop)
        if name not in self._digits:
            return codes
        levels, shape = self._digits[name]
        return quantization.unpack_codes(codes, levels, math.prod(shape[1:])).reshape(len(codes), *shape[1:])

    def _dense(self, name: str, start: int, stop: int) -> AnyArray:
        counts, shape = self._counts[name], self._sparse[name]
        first = int(counts[:start].sum(dtype=np.int64))
        last = first + int(counts[start:stop].sum(dtype=np.int64))
        columns, values = (rows_of(part, name, first, last) for part in (self._columns, self._codes))
        return to_dense(Sparse(counts[start:stop], columns, values), (stop - start, *shape[1:]))

    def __iter__(self) -> Iterator[str]:
        yield from self._codes
        yield from self._left

    def __len__(self) -> int:
        return len(self._codes) + len(self._left)


class Digits(NamedTuple):
    """Codes that share bytes: their levels, and the shape of the parameter."""

    levels: int
    shape: tuple[int, ...]


def digits_of(array: AnyArray) -> Digits:
    levels, *axes = shape_of(array)
    return Digits(levels, tuple(axes))


def shape_of(axes: AnyArray) -> tuple[int, ...]:
    return tuple(int(size) for size in axes.reshape(-1))
