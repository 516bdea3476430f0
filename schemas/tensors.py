"""Arrays that are read and made a piece at a time, so that a model never has to be in memory whole.

A `LazyArrays` is a mapping of names to arrays like any other, and besides tells types and shapes without
reading, and gives rows (along the first axis) without the rest. The files are safetensors files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from schemas.errors import InvariantError, PeerError

AnyArray = NDArray[Any]
Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""The type and the shape of an array."""

DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(code).newbyteorder("<")
    for name, code in {
        "F64": "f8", "F32": "f4", "F16": "f2",
        "I64": "i8", "I32": "i4", "I16": "i2", "I8": "i1",
        "U64": "u8", "U32": "u4", "U16": "u2", "U8": "u1", "BOOL": "?",
    }.items()
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_ALIGNED = ("BOOL", "U8", "I8", "I16", "U16", "F16", "I32", "U32", "F32", "F64", "I64", "U64")
"""The order of types, smallest alignment first, in which safetensors lays tensors out, largest first."""
_LENGTH = struct.Struct("<Q")
PIECE_BYTES = 4 * 1024 * 1024
"""So much of an array is read or made at once where a whole one is not asked for."""


class LazyArrays(Mapping[str, AnyArray]):
    """Arrays by name, made when they are asked for and not kept."""

    @abstractmethod
    def kind(self, name: str) -> Kind:
        """The type and shape of an array, without making it."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Rows `start` to `stop - 1` along the first axis; of a scalar, which has none, (0, 1) is all."""

    def __getitem__(self, name: str) -> AnyArray:
        _, shape = self.kind(name)
        return self.rows(name, 0, shape[0] if shape else 1)

    def __contains__(self, name: object) -> bool:
        """Told without making the array."""
        try:
            self.kind(name)  # type: ignore[arg-type]
        except KeyError:
            return False
        return True


class MadeArrays(LazyArrays):
    """Arrays of known kinds, whose rows a function makes: `make(name, start, stop)`."""

    def __init__(self, kinds: Mapping[str, Kind], make: Callable[[str, int, int], AnyArray]) -> None:
        self._kinds, self._make = kinds, make

    def kind(self, name: str) -> Kind:
        """As it was said."""
        return self._kinds[name]

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Made now."""
        return self._make(name, start, stop)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


class TensorFile(LazyArrays):
    """The tensors of a safetensors file; raises `PeerError` for a file that is none, now or later.

    The library checks the header; rows are then read with `pread`, so nothing stays mapped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with as_peer_errors(path.name):
            with safe_open(path, framework="numpy"):
                pass  # the header is sound: offsets without holes or overlaps, sizes that fit the types
            with path.open("rb") as file:
                (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
                self._kinds, self._offsets = _kinds_and_offsets(file.read(length))

    def kind(self, name: str) -> Kind:
        """As the header says."""
        return self._kinds[name]

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Read from the file."""
        dtype, shape = self._kinds[name]
        row = dtype.itemsize * math.prod(shape[1:])
        with as_peer_errors(self._path.name), self._path.open("rb", buffering=0) as file:
            array = np.empty((stop - start, *shape[1:]) if shape else (), dtype)
            file.seek(self._offsets[name] + start * row)
            if array.nbytes and _fill(file, array) != array.nbytes:
                raise ValueError(f"'{name}' is cut off")
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


@lru_cache(maxsize=64)
def _kinds_and_offsets(header: bytes) -> tuple[Mapping[str, Kind], Mapping[str, int]]:
    """Of every tensor, and where in the file it begins; one for all files that have the same header.

    A thousand updates of one sub-model have: their headers together would weigh as much as a model.
    """
    told = json.loads(header)
    told.pop("__metadata__", None)
    start = _LENGTH.size + len(header)
    kinds = {name: (DTYPES[one["dtype"]], tuple(one["shape"])) for name, one in told.items()}
    return kinds, {name: start + one["data_offsets"][0] for name, one in told.items()}


class Prefixed(LazyArrays):
    """Those of some lazy arrays whose names begin with `prefix`, without it."""

    def __init__(self, arrays: LazyArrays, prefix: str) -> None:
        self._arrays, self._prefix = arrays, prefix

    def kind(self, name: str) -> Kind:
        """As the whole says."""
        return self._arrays.kind(self._prefix + name)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """As the whole gives them."""
        return self._arrays.rows(self._prefix + name, start, stop)

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def kind_of(arrays: Mapping[str, AnyArray], name: str) -> Kind:
    """The type and shape of an array, without making one that is lazy."""
    if isinstance(arrays, LazyArrays):
        return arrays.kind(name)
    return arrays[name].dtype, arrays[name].shape


def rows_of(arrays: Mapping[str, AnyArray], name: str, start: int, stop: int) -> AnyArray:
    """Rows of an array, without making the rest of one that is lazy; a scalar's (0, 1) is all of it."""
    if isinstance(arrays, LazyArrays):
        return arrays.rows(name, start, stop)
    array = arrays[name]
    return array[start:stop] if array.ndim else array


def pieces(kind: Kind, size: int = PIECE_BYTES) -> Iterator[tuple[int, int]]:
    """Runs of rows (start, stop) of about `size` bytes each that make up an array; a scalar is one."""
    dtype, shape = kind
    if not shape:
        yield 0, 1
        return
    row = max(1, dtype.itemsize * math.prod(shape[1:]))
    step = max(1, size // row)
    yield from ((start, min(start + step, shape[0])) for start in range(0, shape[0], step))


def write_tensors(
    file: BinaryIO, arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None
) -> str:
    """Write arrays as a safetensors file, a piece at a time, and return the sha256 of its bytes, hex.

    The bytes are those that the safetensors library writes for the same arrays and `metadata`.
    """
    digest = hashlib.sha256()
    for data in _bytes_of(arrays, metadata):
        file.write(data)
        digest.update(data)
    return digest.hexdigest()


def digest_of_tensors(arrays: Mapping[str, AnyArray]) -> str:
    """The sha256, hex, of the file that `write_tensors` would write."""
    digest = hashlib.sha256()
    for data in _bytes_of(arrays):
        digest.update(data)
    return digest.hexdigest()


def tensors_bytes(arrays: Mapping[str, AnyArray]) -> int:
    """How many bytes `write_tensors` would write; no array is made for that."""
    text, kinds = _header(arrays)
    return (
        _LENGTH.size + len(text) + sum(DTYPES[dtype].itemsize * math.prod(s) for dtype, s in kinds.values())
    )


def _header(
    arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, Mapping[str, tuple[str, tuple[int, ...]]]]:
    """The file's header, and the arrays' types and shapes in the order in which they follow it."""
    kinds = {name: _named(name, kind_of(arrays, name)) for name in arrays}
    names = sorted(kinds, key=lambda name: (-_ALIGNED.index(kinds[name][0]), name))
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    end = 0
    for name in names:
        dtype, shape = kinds[name]
        begin, end = end, end + DTYPES[dtype].itemsize * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8), {name: kinds[name] for name in names}


def _bytes_of(
    arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    text, kinds = _header(arrays, metadata)
    yield _LENGTH.pack(len(text)) + text
    for name, (dtype, shape) in kinds.items():
        for start, stop in pieces((DTYPES[dtype], shape)):
            piece = np.ascontiguousarray(rows_of(arrays, name, start, stop), DTYPES[dtype])
            if piece.size:
                yield piece.reshape(-1).view(np.uint8).data


def _named(name: str, kind: Kind) -> tuple[str, tuple[int, ...]]:
    dtype = _NAMES.get(kind[0].newbyteorder("<"))
    if dtype is None:
        raise InvariantError(f"'{name}': safetensors has no type {kind[0]}")
    return dtype, kind[1]


def _fill(file: Any, array: AnyArray) -> int:
    """Read until the array is full or the file ends; returns the bytes that were read."""
    view, got = array.reshape(-1).view(np.uint8).data, 0
    while got < len(view):
        read = file.readinto(view[got:])
        if not read:
            break
        got += read
    return got


@contextlib.contextmanager
def as_peer_errors(source: str) -> Iterator[None]:
    """All that safetensors and numpy raise for a header that lies: types and shapes that nobody has too."""
    try:
        yield
    except (
        SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError, IndexError
    ) as error:  # fmt: skip
        raise PeerError(f"{source} is not a safetensors blob: {str(error)[:200]}") from error
