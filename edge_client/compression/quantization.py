"""Codecs of single numbers: halves, and whole numbers with a scale per channel.

Both work on rows [R, ...] of one parameter, so that no more than a piece of it is ever in memory.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.tensors.arrays import AnyArray
from schemas.tensors.blobs import Array

_DRAWN = np.dtype("<u2")
"""Numbers of 16 bits: finer than any chance that matters here."""
_PER_STEP = 8 // _DRAWN.itemsize
"""How many of them one step of the generator gives."""


@dataclass(frozen=True)
class Fp16:
    """Half precision: off by at most 2^-11 of a number, or by 2^-25 below 2^-14; infinite from 65,520 on."""

    scaled = False
    dtype = np.dtype("<f2")

    def encode(self, rows: Array, scales: Array, drawn: Array) -> AnyArray:
        """The nearest halves; there are no scales, and nothing is drawn."""
        return _cast(rows, "float16")


@dataclass(frozen=True)
class Int8:
    """Whole numbers from -`levels` to `levels` times a scale per row, rounded up or down by chance.

    The chance is such that the mean over many roundings is the number itself (Alistarh et al. 2017, QSGD,
    section 3.1, there with a scale per vector); off by less than a step, the row's largest number over
    `levels`. Few levels make many zeros, which compress well.
    """

    levels: int = 127
    scaled = True
    dtype = np.dtype("i1")

    def __post_init__(self) -> None:
        if not isinstance(self.levels, int) or not 1 <= self.levels <= 127:
            raise ValueError(f"levels is a whole number from 1 to 127, not {self.levels}")

    def scales(self, rows: Array) -> Array:
        """The step of each row [R]; 0 where all is 0, not finite where a number is not."""
        flat = rows.reshape(len(rows), math.prod(rows.shape[1:]))
        # The largest and the smallest, rather than the largest size: that would be a copy of all.
        largest = np.maximum(flat.max(axis=1, initial=0), -flat.min(axis=1, initial=0)).astype(np.float32)
        steps = np.maximum(largest / np.float32(self.levels), np.finfo(np.float32).tiny)
        return np.where(largest == 0, np.float32(0), steps)

    def encode(self, rows: Array, scales: Array, drawn: Array) -> AnyArray:
        """Codes like the rows; `drawn` are numbers from (0, 1) like them, or 1/2 for the nearest."""
        steps = np.where(scales > 0, scales, np.float32(1)).reshape(-1, *[1] * (rows.ndim - 1))
        # What is not finite has a scale that says so: its codes do not matter, but are the same anywhere.
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
    """Codes as float32, their own if they are that already."""
    return _cast(codes, "float32") if codes.dtype == np.float16 else codes.astype(np.float32, copy=False)


def _cast(array: AnyArray, to: str) -> AnyArray:
    """Between halves and float32, to the nearest and even: numpy's way is the same and ten times slower."""
    import torch

    writable = torch.from_numpy(np.require(array, requirements=["W"]))
    cast: AnyArray = writable.to(getattr(torch, to)).numpy()
    return cast


def draw(seed: int, name: str, start: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers from (0, 1) for rows `start` and on of a parameter; the same whatever pieces are asked for.

    Each is the middle of one of 2^16 equal intervals, so that a chance is off by at most 2^-17. The generator
    can begin anywhere in its sequence, and takes half the time of one that counts (O'Neill 2014, PCG).
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
