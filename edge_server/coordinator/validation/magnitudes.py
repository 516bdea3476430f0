"""Magnitudes of an update's numbers, computed in one pass for all later checks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.decoding import Decoded
from schemas.tensors.arrays import AnyArray, Arrays, Groups, blocks, kind_of, rows_of

BAND_NUMBERS = 64 * 1024  # Numbers that fit a processor's cache


@dataclass(frozen=True, slots=True)
class Magnitude:
    """Largest absolute value of `count` numbers and the sum of their squares; NaN if one is not finite."""

    largest: float
    squares: float
    count: int


Magnitudes = Mapping[str, Mapping[str, Magnitude]]  # By group and array name


def magnitudes_of(groups: Groups) -> Magnitudes:
    """The magnitude of every array, each read once, in blocks of rows."""
    return {group: {name: magnitude_of(arrays, name) for name in arrays} for group, arrays in groups.items()}


def is_moved(sizes: Magnitudes) -> bool:
    """Whether any number is not 0."""
    return any(size.largest > 0 for arrays in sizes.values() for size in arrays.values())


def magnitude_of(arrays: Arrays, name: str) -> Magnitude:
    if isinstance(arrays, Decoded) and arrays.is_scaled(name):
        return _scaled_size(arrays, name)
    largest, squares, count = 0.0, 0.0, 0
    for start, stop in blocks(kind_of(arrays, name)):
        rows = rows_of(arrays, name, start, stop).reshape(-1)
        if not rows.size:
            continue
        most = max(float(rows.max()), -float(rows.min()))
        if not math.isfinite(most):
            return Magnitude(math.nan, math.nan, count + rows.size)
        largest = max(largest, most)
        # In the array's own precision: bounds are multiples of the usual norm.
        with np.errstate(over="ignore"):
            squares += float(np.dot(rows, rows))
        count += rows.size
    return Magnitude(largest, squares, count)


def _scaled_size(arrays: Decoded, name: str) -> Magnitude:
    """The magnitude of codes with a scale per row, without multiplying them."""
    largest, squares, count = 0.0, 0.0, 0
    for start, stop in blocks(arrays.kind(name)):
        codes, scales = arrays.coded_rows(name, start, stop)
        codes = codes.reshape(len(codes), -1)
        count += codes.size
        # As int16: -128 has no int8 opposite.
        most = np.maximum(codes.max(axis=1), -codes.min(axis=1).astype(np.int16))
        with np.errstate(over="ignore", invalid="ignore"):
            farthest = float((most.astype(np.float32) * np.abs(scales)).max(initial=0))
            if not math.isfinite(farthest):
                return Magnitude(math.nan, math.nan, count)
            largest = max(largest, farthest)
            squares += float(np.dot(_squares(codes), np.square(scales, dtype=np.float64)))
    return Magnitude(largest, squares, count)


def _squares(codes: AnyArray) -> NDArray[np.float64]:
    """The sum of squares of each row, computed for a few rows at a time."""
    step = max(1, BAND_NUMBERS // max(1, codes.shape[1]))
    sums = np.empty(len(codes))
    for start in range(0, len(codes), step):
        band = codes[start : start + step].astype(np.float32)
        sums[start : start + step] = np.einsum("ij,ij->i", band, band)
    return sums
