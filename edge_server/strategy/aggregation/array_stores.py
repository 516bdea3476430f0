"""Stores for the arrays of a run's state other than the model: in memory, or in an unnamed file.

A control variate and each moment of an optimizer are as large as the model. In a file neither the old nor the
new ones are in memory while a round is closed: both are read and written a few rows at a time.
"""

import math
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from edge_server.strategy.aggregation.blocks import as_rows, row_blocks
from schemas.tensors.arrays import AnyArray, Arrays, Kind, LazyArrays, kind_of, rows_of
from schemas.tensors.files import fill


class MemoryArrays(dict[str, AnyArray]):
    """Arrays in memory."""

    def put_rows(self, name: str, kind: Kind, start: int, rows: AnyArray) -> None:
        if name not in self:
            dtype, shape = kind
            self[name] = np.empty(shape, dtype)
        as_rows(self[name])[start : start + len(rows)] = rows


class FileArrays(LazyArrays):
    """Arrays in an unnamed file in `folder`, deleted with its last reference or with the process.

    With a `path` the file is kept there, for `reopen`.
    """

    def __init__(self, folder: Path, path: Path | None = None) -> None:
        self._folder, self._path = folder, path
        self._kinds: dict[str, Kind] = {}
        self._begins: dict[str, int] = {}
        self._end = 0

    @classmethod
    def reopen(cls, path: Path, kinds: Mapping[str, Kind]) -> "FileArrays":
        """The arrays of these kinds that were put into this file in this order."""
        found = cls(path.parent)
        found.__dict__["_descriptor"] = found._own_descriptor(os.open(path, os.O_RDONLY))
        for name, kind in kinds.items():
            found._place(name, kind)
        return found

    @cached_property
    def _descriptor(self) -> int:
        if self._path is not None:
            return self._own_descriptor(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666))
        with tempfile.TemporaryFile(dir=self._folder, buffering=0) as file:
            return self._own_descriptor(os.dup(file.fileno()))

    def _own_descriptor(self, descriptor: int) -> int:
        """The descriptor, which is closed with the last reference to these arrays."""
        weakref.finalize(self, os.close, descriptor)
        return descriptor

    def put_rows(self, name: str, kind: Kind, start: int, rows: AnyArray) -> None:
        """Write rows from `start` on of an array of this kind; raises `OSError` if the disk is full."""
        if name not in self._kinds:
            self._place(name, kind)
        data = np.ascontiguousarray(rows, kind[0]).reshape(-1).view(np.uint8).data
        offset = self._offset(name, start)
        while len(data):
            written = os.pwrite(self._descriptor, data, offset)
            offset, data = offset + written, data[written:]

    def _place(self, name: str, kind: Kind) -> None:
        self._kinds[name], self._begins[name] = kind, self._end
        self._end += kind[0].itemsize * math.prod(kind[1])

    def kind(self, name: str) -> Kind:
        return self._kinds[name]

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Read rows; raises `OSError` if some were never written."""
        dtype, shape = self._kinds[name]
        array = np.empty((stop - start, *shape[1:]) if shape else (), dtype)
        # Positional reads: several threads may read at once.
        if fill(array, self._descriptor, self._offset(name, start)) < array.nbytes:
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
NewArrayStore = Callable[[], ArrayStore]  # makes an empty store


def store_arrays(arrays: Arrays, keep: NewArrayStore) -> ArrayStore:
    """A copy of the arrays in a new store, written a few rows at a time."""
    place = keep()
    for name in arrays:
        kind = kind_of(arrays, name)
        for start, stop in row_blocks(kind[1]):
            place.put_rows(name, kind, start, as_rows(rows_of(arrays, name, start, stop)))
    return place
