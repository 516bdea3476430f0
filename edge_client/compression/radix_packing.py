"""Codes of few levels that share bytes: what a byte holds is a number whose digits are codes.

A code of `levels` has one of 2 levels + 1 values. As many digits of that base as fit stand in a byte: two up
to 7 levels, three of 2, five of 1. A row's codes are cut into as many runs, and the first byte holds the
first code of each, that of the first run as its highest digit. So rows are read with a few divisions of bytes
that lie side by side, and whoever packs them (zstd) has fewer to look at, and no code that fills one alone.
"""

from __future__ import annotations

import numpy as np

from schemas.tensors.arrays import AnyArray

BYTE = np.dtype("u1")


def per_byte(levels: int) -> int:
    """How many codes share a byte."""
    count = 1
    while (2 * levels + 1) ** (count + 1) <= 256:
        count += 1
    return count


def row_bytes(width: int, levels: int) -> int:
    """Bytes that hold the codes of a row of this length."""
    return -(-width // per_byte(levels))


def largest_byte(levels: int) -> int:
    """No byte of codes is larger."""
    return int((2 * levels + 1) ** per_byte(levels)) - 1


def in_bytes(codes: AnyArray, levels: int) -> AnyArray:
    """The bytes [R, B] that hold int8 codes [R, W], none of which is beyond `levels`."""
    base, width = BYTE.type(2 * levels + 1), row_bytes(codes.shape[1], levels)
    held = np.zeros((len(codes), width), BYTE)
    for run in range(per_byte(levels)):
        digits = codes[:, run * width : (run + 1) * width].view(BYTE)
        held *= base
        held[:, : digits.shape[1]] += digits
        # Of a run that is short the rest is zeros.
        held += BYTE.type(levels)
    return held


def codes_in(held: AnyArray, levels: int, width: int) -> AnyArray:
    """The int8 codes [R, `width`] that bytes [R, B] hold."""
    base = BYTE.type(2 * levels + 1)
    codes = np.empty((len(held), width), np.int8)
    for run in reversed(range(per_byte(levels))):
        rest = held // base
        digits = held - rest * base
        into = codes[:, run * held.shape[1] : (run + 1) * held.shape[1]].view(BYTE)
        np.subtract(digits[:, : into.shape[1]], BYTE.type(levels), out=into)
        held = rest
    return codes
