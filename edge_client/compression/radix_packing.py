"""Packs codes of few levels into bytes: the digits of a byte are codes.

A code of `levels` has one of 2 levels + 1 values. A byte holds as many digits of that base as fit: two for 3
to 7 levels, three for 2, five for 1. A row's codes are split into that many parts, and byte i holds the i-th
code of each part, with the first part's as its highest digit. So a row is unpacked with a few divisions of
contiguous bytes, and zstd has fewer bytes to compress.
"""

import numpy as np

from schemas.tensors.arrays import AnyArray

BYTE = np.dtype("u1")


def per_byte(levels: int) -> int:
    """The number of codes in a byte."""
    count = 1
    while (2 * levels + 1) ** (count + 1) <= 256:
        count += 1
    return count


def row_bytes(width: int, levels: int) -> int:
    """The number of bytes for the codes of a row of `width`."""
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
