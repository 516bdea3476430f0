"""Parameter groups as blobs: safetensors files with tensors named `group/parameter`.

Nothing is unpickled, and invalid bytes raise `PeerError`. `schemas.tensors.chunks` has the transfer of blobs,
without numpy.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schemas.errors import PeerError
from schemas.tensors.arrays import GatheredArrays, LazyArrays, Prefixed
from schemas.tensors.chunks import (
    CHUNK_BYTES,
    CHUNK_HEADER_BYTES,
    INLINE_BYTES,
    MAX_BLOB_BYTES,
    SMALL_CHUNK_BYTES,
    BlobRef,
    Chunk,
    chunk_header,
    decode_chunk,
    decode_json,
    digest_of,
    encode_chunk,
    encode_json,
)
from schemas.tensors.files import TensorFile

Array = NDArray[np.float32]
Arrays = Mapping[str, Array]
Groups = Mapping[str, Arrays]


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
