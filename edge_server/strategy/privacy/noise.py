"""Gaussian noise that only a holder of the key can reproduce.

Noise is a function of a secret, so a round gives the same result each time it is computed. Random bits are
SHAKE-256 of the key and a label (FIPS 202), turned into normal numbers in pairs (Box and Muller 1958).
Numbers are doubles; attacks on floating-point gaps (Mironov 2012) are not prevented.
"""

import hashlib
import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.blocks import row_blocks
from schemas.tensors.arrays import kind_of, rows_of

KEY_BYTES = 32
CELL_NUMBERS = 256 * 1024  # numbers drawn at once, or one row of a parameter if that is longer


def round_key(secret: bytes, number: int, sums: Mapping[str, NDArray[np.float64]], count: float) -> bytes:
    """The key of one release, derived from the secret, the round, and the sums [P] and count that it hides.

    Different sums get different noise: otherwise, if a round were closed twice with different updates, the
    difference of the two results would contain no noise.
    """
    digest = hashlib.blake2b(key=secret, digest_size=KEY_BYTES)
    digest.update(f"{number}/{count!r}".encode())
    for name in sorted(sums):
        digest.update(name.encode())
        for start, stop in row_blocks(kind_of(sums, name)[1]):
            digest.update(np.ascontiguousarray(rows_of(sums, name, start, stop)).data)
    return digest.digest()


def noise_rows(key: bytes, name: str, shape: tuple[int, ...], start: int, stop: int) -> NDArray[np.float64]:
    """Rows of a parameter's normal numbers, [stop - start, ...], drawn in cells with a label each.

    The first cell's label is the parameter's name.
    """
    shape = shape or (1,)
    cells = []
    for number, (first, last) in enumerate(row_blocks(shape, CELL_NUMBERS)):
        if first < stop and last > start:
            label = f"{name}/{number}" if number else name
            drawn = standard_normal(key, label, (last - first, *shape[1:]))
            cells.append(drawn[max(start, first) - first : min(stop, last) - first])
    return np.concatenate(cells)


def standard_normal(key: bytes, label: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Independent normal numbers of mean 0 and variance 1 for this key and label, of any shape."""
    count = math.prod(shape)
    half = (count + 1) // 2
    bits = np.frombuffer(hashlib.shake_256(key + label.encode()).digest(16 * half), "<u8")
    uniform = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[:half])), 2 * np.pi * uniform[half:]
    pairs = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return pairs[:count].reshape(shape)
