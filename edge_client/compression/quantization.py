"""Number codecs: half precision, and integers with a scale per channel.

Both encode rows [R, ...] of a parameter, so that only a block of it is in memory.
"""

import math
import sys
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.tensors.arrays import AnyArray, Array

_DRAWN = np.dtype("<u2")  # random numbers of 16 bits, which is fine enough for rounding
_PER_STEP = 8 // _DRAWN.itemsize  # random numbers per step of the generator


@dataclass(frozen=True)
class Fp16:
    """Half precision: relative error 2^-11 at most, or 2^-25 absolute below 2^-14; infinite from 65,520."""

    scaled = False
    dtype = np.dtype("<f2")

    def encode(self, rows: Array, scales: Array, drawn: Array) -> AnyArray:
        """The nearest halves; `scales` and `drawn` are ignored."""
        return _cast(rows, "float16")


@dataclass(frozen=True)
class Int8:
    """Integers from -`levels` to `levels` times a scale per row, rounded stochastically and without bias.

    Alistarh et al. 2017, QSGD, section 3.1, there with a scale per vector. The error is below one step, which
    is the row's largest magnitude divided by `levels`. Few levels make many zeros, which compress well.
    """

    levels: int = 127
    scaled = True
    dtype = np.dtype("i1")

    def __post_init__(self) -> None:
        if not isinstance(self.levels, int) or not 1 <= self.levels <= 127:
            raise ValueError(f"levels is a whole number from 1 to 127, not {self.levels}")

    def scales(self, rows: Array) -> Array:
        """The step of each row [R]: 0 for a row of zeros, not finite if a number is not."""
        flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        # Maximum and minimum rather than the maximum of `abs`, which would copy the rows.
        largest = np.maximum(flat.max(axis=1, initial=0), -flat.min(axis=1, initial=0)).astype(np.float32)
        steps = np.maximum(largest / np.float32(self.levels), np.finfo(np.float32).tiny)
        return np.where(largest == 0, np.float32(0), steps)

    def encode(self, rows: Array, scales: Array, drawn: Array) -> AnyArray:
        """Codes of the rows' shape; `drawn` are random numbers from (0, 1), or 1/2 for the nearest."""
        steps = np.where(scales > 0, scales, np.float32(1)).reshape(-1, *[1] * (rows.ndim - 1))
        # The scale marks a row that is not finite: its codes are unused but the same on all machines.
        with np.errstate(invalid="ignore", over="ignore"):
            codes = rows / steps
            codes += drawn
            np.floor(codes, out=codes)
        if not np.isfinite(scales).all():
            np.nan_to_num(codes, copy=False, posinf=0, neginf=0)
        whole: AnyArray = np.clip(codes, -self.levels, self.levels, out=codes).astype(self.dtype)
        return whole


NumberCodec = Fp16 | Int8


def floats_of(codes: AnyArray) -> Array:
    """Codes as float32; not copied if they have this type."""
    return _cast(codes, "float32") if codes.dtype == np.float16 else codes.astype(np.float32, copy=False)


def _cast(array: AnyArray, to: str) -> AnyArray:
    """Convert between half and float32, to nearest even.

    Torch is ten times faster than numpy with the same result, but importing it takes hundreds of megabytes:
    it is used only where something else has imported it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        with np.errstate(over="ignore"):
            return array.astype(to)
    writable = torch.from_numpy(np.require(array, requirements=["W"]))
    cast: AnyArray = writable.to(getattr(torch, to)).numpy()
    return cast


def draw_uniform(seed: int, name: str, start: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Random numbers from (0, 1) for the rows of a parameter from `start` on, independent of the blocks read.

    Each number is the middle of one of 2^16 equal intervals. The generator (O'Neill 2014, PCG) can start at
    any position and takes half the time of a counter-based one.
    """
    width = math.prod(shape[1:])
    steps = -(-width // _PER_STEP)
    source = np.random.PCG64DXSM([seed, zlib.crc32(name.encode())]).advance(start * steps)
    raw = source.random_raw(shape[0] * steps)
    numbers = raw.astype("<u8", copy=False).view(_DRAWN).reshape(shape[0], steps * _PER_STEP)
    drawn = numbers[:, :width].astype(np.float32)
    drawn += np.float32(0.5)
    drawn *= np.float32(2.0**-16)
    return drawn.reshape(shape)


# Packs codes of few levels into bytes: the digits of a byte are codes.
#
# A code of `levels` has one of 2 levels + 1 values. A byte holds as many digits of that base as fit: two for
# 3 to 7 levels, three for 2, five for 1. A row's codes are split into that many parts, and byte i holds the
# i-th code of each part, with the first part's as its highest digit. So a row is unpacked with a few
# divisions of contiguous bytes, and zstd has fewer bytes to compress.

BYTE = np.dtype("u1")


def per_byte(levels: int) -> int:
    count = 1
    while (2 * levels + 1) ** (count + 1) <= 256:
        count += 1
    return count


def row_bytes(width: int, levels: int) -> int:
    return -(-width // per_byte(levels))


def largest_byte(levels: int) -> int:
    """The largest value of a byte of codes."""
    return int((2 * levels + 1) ** per_byte(levels)) - 1


def pack_codes(codes: AnyArray, levels: int) -> AnyArray:
    """Pack int8 codes [R, W] between -`levels` and `levels` into bytes [R, B]."""
    base, width = BYTE.type(2 * levels + 1), row_bytes(codes.shape[1], levels)
    held = np.zeros((len(codes), width), BYTE)
    for part in range(per_byte(levels)):
        digits = codes[:, part * width : (part + 1) * width].view(BYTE)
        held *= base
        held[:, : digits.shape[1]] += digits
        # The last part may be shorter; its missing codes are 0.
        held += BYTE.type(levels)
    return held


def unpack_codes(held: AnyArray, levels: int, width: int) -> AnyArray:
    """Unpack bytes [R, B] of at most `largest_byte` into int8 codes [R, `width`]."""
    base, size = BYTE.type(2 * levels + 1), held.shape[1]
    codes = np.empty((len(held), width), np.int8)
    for part in reversed(range(per_byte(levels))):
        rest = held // base if part else None
        digits = held if rest is None else held - rest * base
        into = codes[:, part * size : (part + 1) * size].view(BYTE)
        np.subtract(digits[:, : into.shape[1]], BYTE.type(levels), out=into)
        held = held if rest is None else rest
    return codes
