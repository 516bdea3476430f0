"""Safetensors files, read and written in blocks of rows, and parameter groups as such files.

A tensor of a group has the name `group/parameter`. Nothing is unpickled, and invalid bytes raise `PeerError`.
`schemas.tensors.chunks` has the transfer of these blobs, without numpy.
"""

import contextlib
import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from schemas.errors import InvariantError, PeerError
from schemas.tensors.arrays import (
    AnyArray,
    GatheredArrays,
    Groups,
    Kind,
    KnownArrays,
    LazyArrays,
    Prefixed,
    blocks,
    kind_of,
    rows_of,
)

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
"""Types by ascending alignment; safetensors lays tensors out in the reverse order."""
_LENGTH = struct.Struct("<Q")
MAX_SHARED_HEADER_BYTES = 256 * 1024  # parsed headers are cached up to this size, which no model here reaches
MAX_KNOWN_VALID = 64
_known_valid: set[tuple[bytes, int]] = set()  # headers that were found valid, each with the size of its file


class TensorFile(KnownArrays):
    """The tensors of a safetensors file; raises `PeerError`, also on access, if the file is not valid.

    The safetensors library checks the header; rows are read without mapping the file. With `data`, the file's
    bytes, rows are views of them.
    """

    def __init__(self, path: Path, data: memoryview | None = None) -> None:
        self._path, self._data = path, data
        with _as_peer_errors(path.name):
            if data is None:
                header, size = _read_header(path)
            else:
                header = bytes(data[_LENGTH.size :][: _header_length(data[: _LENGTH.size])])
                size = len(data)
            _check(path, header, size, data)
            # Shared by equal headers: those of 1,000 updates are as large as a model.
            parse = _shared if len(header) <= MAX_SHARED_HEADER_BYTES else _kinds_and_offsets
            kinds, self._offsets = parse(header)
        super().__init__(kinds)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        dtype, shape = self.kind(name)
        taken = (stop - start, *shape[1:]) if shape else ()
        offset = self._offsets[name] + start * dtype.itemsize * math.prod(shape[1:])
        if self._data is not None:
            return np.frombuffer(self._data, dtype, math.prod(taken), offset).reshape(taken)
        with _as_peer_errors(self._path.name):
            array = np.empty(taken, dtype)
            # A descriptor: file objects would cost more than reading a few rows.
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                read = fill(array, descriptor, offset)
            finally:
                os.close(descriptor)
            if read != array.nbytes:
                raise ValueError(f"'{name}' is cut off")
        return array


class FileGroups(Mapping[str, LazyArrays]):
    """The parameter groups of a file, read in blocks and on access.

    Access to a file that has not been checked may raise `PeerError`. With `data`, the file's bytes, nothing
    is read and arrays are views of them.
    """

    def __init__(self, path: Path, data: memoryview | None = None) -> None:
        self._path, self._data = path, data

    @cached_property
    def _groups(self) -> dict[str, LazyArrays]:
        file = TensorFile(self._path, self._data)
        parts = {key: key.partition("/") for key in file}
        if odd := next((key for key, part in parts.items() if not all(part)), None):
            raise PeerError(f"{self._path.name} holds a tensor without a group: {odd!r}")
        return {group: Prefixed(file, f"{group}/") for group in sorted({part[0] for part in parts.values()})}

    def __getitem__(self, group: str) -> LazyArrays:
        return self._groups[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


class FlatGroups(GatheredArrays):
    """Parameter groups as tensors named `group/parameter`, lazy if the groups are."""

    def __init__(self, groups: Groups) -> None:
        super().__init__(
            {f"{group}/{name}": (arrays, name) for group, arrays in groups.items() for name in arrays}
        )


def _read_header(path: Path) -> tuple[bytes, int]:
    """The header and the size of a file."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        length = _header_length(file.read(_LENGTH.size))
        if length > MAX_SHARED_HEADER_BYTES:
            with safe_open(path, framework="numpy"):
                pass  # refuse an invalid file before its header is read
        return file.read(length), size


def _header_length(data: bytes | memoryview) -> int:
    if len(data) < _LENGTH.size:
        raise ValueError("it is shorter than its header's length")
    return int(_LENGTH.unpack(data)[0])


def _check(path: Path, header: bytes, size: int, data: memoryview | None) -> None:
    """Check that offsets have no holes or overlaps and that sizes fit the types and the file.

    The result depends on header and file size only, so equal headers are checked once.
    """
    if (header, size) in _known_valid:
        return
    if data is None:
        with safe_open(path, framework="numpy"):
            pass
    else:
        deserialize(bytes(data))  # type: ignore[no-untyped-call]
    if len(header) <= MAX_SHARED_HEADER_BYTES:
        if len(_known_valid) >= MAX_KNOWN_VALID:
            _known_valid.clear()
        _known_valid.add((header, size))


def _kinds_and_offsets(header: bytes) -> tuple[Mapping[str, Kind], Mapping[str, int]]:
    """The type and shape of every tensor, and its offset in the file."""
    tensors = json.loads(header)
    tensors.pop("__metadata__", None)
    start = _LENGTH.size + len(header)
    kinds = {name: (DTYPES[tensor["dtype"]], tuple(tensor["shape"])) for name, tensor in tensors.items()}
    return kinds, {name: start + tensor["data_offsets"][0] for name, tensor in tensors.items()}


_shared = lru_cache(maxsize=64)(_kinds_and_offsets)


def write_tensors(file: BinaryIO, arrays: Mapping[str, AnyArray]) -> str:
    """Write arrays as a safetensors file and return the sha256 of its bytes, hex.

    The bytes equal those that the safetensors library writes for the same arrays.
    """
    digest = hashlib.sha256()
    for data in tensor_file_blocks(arrays):
        file.write(data)
        digest.update(data)
    return digest.hexdigest()


def digest_of_tensors(arrays: Mapping[str, AnyArray]) -> str:
    """The sha256, hex, of the file that `write_tensors` writes."""
    digest = hashlib.sha256()
    for data in tensor_file_blocks(arrays):
        digest.update(data)
    return digest.hexdigest()


def tensor_file_size(arrays: Mapping[str, AnyArray]) -> int:
    """Bytes that `write_tensors` writes, without making any array."""
    text, kinds = _header(arrays)
    tensors = sum(DTYPES[dtype].itemsize * math.prod(shape) for dtype, shape in kinds.values())
    return _LENGTH.size + len(text) + tensors


def _header(
    arrays: Mapping[str, AnyArray], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, Mapping[str, tuple[str, tuple[int, ...]]]]:
    """The file's header, and the arrays' types and shapes in file order."""
    kinds = {name: _safetensors_type(name, kind_of(arrays, name)) for name in arrays}
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
    """The blocks of the file that `write_tensors` writes; each is valid until the next."""
    text, kinds = _header(arrays, metadata)
    yield _LENGTH.pack(len(text)) + text
    for name, (dtype, shape) in kinds.items():
        for start, stop in blocks((DTYPES[dtype], shape)):
            block = np.ascontiguousarray(rows_of(arrays, name, start, stop), DTYPES[dtype])
            if block.size:
                yield block.reshape(-1).view(np.uint8).data


def _safetensors_type(name: str, kind: Kind) -> tuple[str, tuple[int, ...]]:
    dtype = _NAMES.get(kind[0].newbyteorder("<"))
    if dtype is None:
        raise InvariantError(f"'{name}': safetensors has no type {kind[0]}")
    return dtype, kind[1]


def fill(array: AnyArray, descriptor: int, offset: int) -> int:
    """Read from `offset` on until the array is full or the file ends; returns the number of bytes read."""
    view, got = array.reshape(-1).view(np.uint8).data, 0
    while got < len(view):
        read = os.preadv(descriptor, [view[got:]], offset + got)
        if not read:
            break
        got += read
    return got


@contextlib.contextmanager
def _as_peer_errors(source: str) -> Iterator[None]:
    """Turn the errors that safetensors and numpy raise for invalid headers into `PeerError`."""
    try:
        yield
    except (
        SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError, IndexError
    ) as error:  # fmt: skip
        raise PeerError(f"{source} is not a safetensors blob: {str(error)[:200]}") from error
