"""Partial sums as compressed files, for slow links.

A sum is a whole number T of units `FINE`. The files hold its sign and magnitude in bytes, and the bytes of
equal weight of all coordinates together ("planes", as in byte shuffling: Masui et al. 2015, "A compression
scheme for radio data in high performance computing"): the high ones are nearly all 0, as are those of
coordinates that no member holds, and zstd makes them vanish. `p00` to `p04` are the magnitude's lowest 35
bits, `p05` to `p11` the sign in the lowest bit and the rest of the magnitude above it.
"""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.zstd import Zstd
from edge_server.strategy.aggregation.partial_sums import COARSE, FINE, WHOLE
from schemas.errors import PeerError
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import AnyArray, ComputedArrays, kind_of, rows_of
from schemas.tensors.blobs import FileGroups, Groups
from schemas.values import Reason

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
