"""IDX files, the format of MNIST and similar sets: bytes after a short header, memory-mapped.

A device that reads its share of a data set has only that share in memory. Format (MNIST's page; LeCun,
Cortes, Burges): two zero bytes, the type (8 for bytes), the number of axes, and each axis's length as a
big-endian number of four bytes.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from edge_client.data.dataset import Pixels
from schemas.errors import ConfigError

_UNSIGNED_BYTES = 8


def map_idx(path: Path) -> Pixels:
    """The bytes of an IDX file as a read-only array; `ConfigError` for another file."""
    with path.open("rb") as file:
        zeros, kind, axes = struct.unpack(">HBB", file.read(4).ljust(4, b"\xff"))
        header = file.read(4 * axes)
    if zeros or kind != _UNSIGNED_BYTES or len(header) != 4 * axes:
        raise ConfigError(f"{path} is not an IDX file of bytes: unpack it, or fetch it again")
    shape = struct.unpack(f">{axes}I", header)
    if path.stat().st_size < 4 + len(header) + int(np.prod(shape, dtype=np.int64)):
        raise ConfigError(f"{path} is cut off: fetch it again")
    mapped = np.memmap(path, np.uint8, "r", offset=4 + len(header), shape=shape) if all(shape) else None
    return np.zeros(shape, np.uint8) if mapped is None else np.asarray(mapped)
