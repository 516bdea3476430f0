"""Where a round puts what its next state holds beside the model: into memory, or into a file without a name.

A control variate or an optimizer's moments are as large as the model each. In a file neither the old ones nor
the new ones are in memory while a round is closed: both are read and written a few rows at a time.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edge_server.strategy.aggregation.blocks import as_rows, row_blocks
from schemas.tensors.arrays import AnyArray, Kind, LazyArrays, kind_of, rows_of
from schemas.tensors.blobs import Arrays
from schemas.tensors.files import fill


class MemoryArrays(dict[str, AnyArray]):
    """Arrays as they are."""

    def put(self, name: str, kind: Kind, start: int, rows: AnyArray) -> None:
        """Rows from `start` on of an array of this kind."""
        if name not in self:
            dtype, shape = kind
            self[name] = np.empty(shape, dtype)
        as_rows(self[name])[start : start + len(rows)] = rows


class FileArrays(LazyArrays):
    """Arrays in a file of `folder` that is gone with whoever holds it last, and with the process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kinds: dict[str, Kind] = {}
        self._begins: dict[str, int] = {}
        self._end = 0

    @cached_property
    def _file(self) -> Any:
        return tempfile.TemporaryFile(dir=self._folder, buffering=0)

    def put(self, name: str, kind: Kind, start: int, rows: AnyArray) -> None:
        """Rows from `start` on of an array of this kind; raises `OSError` where the disk takes no more."""
        dtype, shape = kind
        if name not in self._kinds:
            self._kinds[name], self._begins[name] = kind, self._end
            self._end += dtype.itemsize * math.prod(shape)
        data = np.ascontiguousarray(rows, dtype).reshape(-1).view(np.uint8).data
        offset = self._offset(name, start)
        while len(data):
            written = os.pwrite(self._file.fileno(), data, offset)
            offset, data = offset + written, data[written:]

    def kind(self, name: str) -> Kind:
        """As it was put."""
        return self._kinds[name]

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Read now; raises `OSError` where the file has not all of them."""
        dtype, shape = self._kinds[name]
        array = np.empty((stop - start, *shape[1:]) if shape else (), dtype)
        # Several threads may read: no one's place in the file is another's.
        if fill(array, self._file.fileno(), self._offset(name, start)) < array.nbytes:
            raise OSError(f"the rows {start} to {stop} of '{name}' were never put here")
        return array

    def _offset(self, name: str, start: int) -> int:
        dtype, shape = self._kinds[name]
        return self._begins[name] + start * dtype.itemsize * math.prod(shape[1:])

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


ArrayStore = MemoryArrays | FileArrays
NewArrayStore = Callable[[], ArrayStore]
"""An empty place for arrays."""


def store_arrays(arrays: Arrays, keep: NewArrayStore) -> ArrayStore:
    """The same arrays at a place of their own, made and put there a few rows at a time."""
    place = keep()
    for name in arrays:
        kind = kind_of(arrays, name)
        for start, stop in row_blocks(kind[1]):
            place.put(name, kind, start, as_rows(rows_of(arrays, name, start, stop)))
    return place
