"""Safetensors files, read and written a piece at a time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, safe_open

from schemas.errors import InvariantError, PeerError
from schemas.tensors.arrays import AnyArray, Kind, KnownArrays, blocks, kind_of, rows_of

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
MAX_SHARED_HEADER_BYTES = 256 * 1024
"""No model here has so many tensors: what a stranger writes in a longer header is not kept."""
MAX_KNOWN_SOUND = 64
_known_sound: set[tuple[bytes, int]] = set()
"""Headers that were found sound, each with the size of its file."""


class TensorFile(KnownArrays):
    """The tensors of a safetensors file; raises `PeerError` for a file that is none, now or later.

    The library checks the header; rows are then read like any bytes, so nothing stays mapped. Where the
    file's bytes are at hand as `data`, rows are views of those, and good for as long as they are.
    """

    def __init__(self, path: Path, data: memoryview | None = None) -> None:
        self._path, self._data = path, data
        with _as_peer_errors(path.name):
            header, size = _begin(path) if data is None else _begun(data)
            _check(path, header, size)
            kinds, self._offsets = _told(header)
        super().__init__(kinds)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Read from the file."""
        dtype, shape = self.kind(name)
        row = dtype.itemsize * math.prod(shape[1:])
        if self._data is not None:
            taken = (stop - start, *shape[1:]) if shape else ()
            return np.frombuffer(
                self._data, dtype, math.prod(taken), self._offsets[name] + start * row
            ).reshape(taken)
        with _as_peer_errors(self._path.name):
            array = np.empty((stop - start, *shape[1:]) if shape else (), dtype)
            # A thousand updates are read some rows at a time: file objects would be most of the work.
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                read = fill(array, descriptor, self._offsets[name] + start * row)
            finally:
                os.close(descriptor)
            if read != array.nbytes:
                raise ValueError(f"'{name}' is cut off")
        return array


def _begin(path: Path) -> tuple[bytes, int]:
    """A file's header and size."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = _length(file.read(_LENGTH.size))
        if length > MAX_SHARED_HEADER_BYTES:
            with safe_open(path, framework="numpy"):
                pass  # before so much is read
        return file.read(length), size


def _begun(data: memoryview) -> tuple[bytes, int]:
    """The same of its bytes."""
    return bytes(data[_LENGTH.size :][: _length(data[: _LENGTH.size])]), len(data)


def _length(data: bytes | memoryview) -> int:
    """Of the header."""
    if len(data) < _LENGTH.size:
        raise ValueError("it is shorter than its header's length")
    return int(_LENGTH.unpack(data)[0])


def _check(path: Path, header: bytes, size: int) -> None:
    """The header is sound: offsets without holes or overlaps, sizes that fit the types and the file.

    That depends on nothing else, so of a thousand updates of one sub-model the library looks at one.
    """
    if (header, size) in _known_sound:
        return
    with safe_open(path, framework="numpy"):
        pass
    if len(header) <= MAX_SHARED_HEADER_BYTES:
        if len(_known_sound) >= MAX_KNOWN_SOUND:
            _known_sound.clear()
        _known_sound.add((header, size))


def _told(header: bytes) -> tuple[Mapping[str, Kind], Mapping[str, int]]:
    """What a header tells; one for all files that have the same.

    A thousand updates of one sub-model have: their headers together would weigh as much as a model.
    """
    return _shared(header) if len(header) <= MAX_SHARED_HEADER_BYTES else _kinds_and_offsets(header)


def _kinds_and_offsets(header: bytes) -> tuple[Mapping[str, Kind], Mapping[str, int]]:
    """Of every tensor, and where in the file it begins."""
    told = json.loads(header)
    told.pop("__metadata__", None)
    start = _LENGTH.size + len(header)
    kinds = {name: (DTYPES[one["dtype"]], tuple(one["shape"])) for name, one in told.items()}
    return kinds, {name: start + one["data_offsets"][0] for name, one in told.items()}


_shared = lru_cache(maxsize=64)(_kinds_and_offsets)


def write_tensors(
    file: BinaryIO, arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None
) -> str:
    """Write arrays as a safetensors file, a piece at a time, and return the sha256 of its bytes, hex.

    The bytes are those that the safetensors library writes for the same arrays and `metadata`.
    """
    digest = hashlib.sha256()
    for data in tensor_file_blocks(arrays, metadata):
        file.write(data)
        digest.update(data)
    return digest.hexdigest()


def digest_of_tensors(arrays: Mapping[str, AnyArray]) -> str:
    """The sha256, hex, of the file that `write_tensors` would write."""
    digest = hashlib.sha256()
    for data in tensor_file_blocks(arrays):
        digest.update(data)
    return digest.hexdigest()


def tensor_file_size(arrays: Mapping[str, AnyArray]) -> int:
    """How many bytes `write_tensors` would write; no array is made for that."""
    text, kinds = _header(arrays)
    tensors = sum(DTYPES[dtype].itemsize * math.prod(shape) for dtype, shape in kinds.values())
    return _LENGTH.size + len(text) + tensors


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


def tensor_file_blocks(
    arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """The bytes of the file that `write_tensors` writes, a piece at a time; each is gone with the next."""
    text, kinds = _header(arrays, metadata)
    yield _LENGTH.pack(len(text)) + text
    for name, (dtype, shape) in kinds.items():
        for start, stop in blocks((DTYPES[dtype], shape)):
            piece = np.ascontiguousarray(rows_of(arrays, name, start, stop), DTYPES[dtype])
            if piece.size:
                yield piece.reshape(-1).view(np.uint8).data


def _named(name: str, kind: Kind) -> tuple[str, tuple[int, ...]]:
    dtype = _NAMES.get(kind[0].newbyteorder("<"))
    if dtype is None:
        raise InvariantError(f"'{name}': safetensors has no type {kind[0]}")
    return dtype, kind[1]


def fill(array: AnyArray, descriptor: int, offset: int) -> int:
    """Read from `offset` on until the array is full or the file ends; returns the bytes that were read."""
    view, got = array.reshape(-1).view(np.uint8).data, 0
    while got < len(view):
        read = os.preadv(descriptor, [view[got:]], offset + got)
        if not read:
            break
        got += read
    return got


@contextlib.contextmanager
def _as_peer_errors(source: str) -> Iterator[None]:
    """All that safetensors and numpy raise for a header that lies: types and shapes that nobody has too."""
    try:
        yield
    except (
        SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError, IndexError
    ) as error:  # fmt: skip
        raise PeerError(f"{source} is not a safetensors blob: {str(error)[:200]}") from error
