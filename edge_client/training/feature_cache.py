"""Features of a device's examples on disk, so that the frozen part of a network runs once per example.

There is a file per frozen part and owner, with a row per example, which is known by the digest of its pixels.
It holds what the last training used: a changed example has a new row, and that of a gone one is dropped.
"""

import hashlib
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.storage import atomic_files
from schemas.errors import PeerError
from schemas.values import FeatureType, KeptFeatures

log = logging.getLogger(__name__)

Rows = NDArray[np.float32]
Places = NDArray[np.int64]

TYPES: dict[FeatureType, str] = {"fp32": "<f4", "fp16": "<f2"}
SUFFIX = ".features"
DIGEST = 16  # bytes
_HEADER = struct.Struct("<8sIIQ")  # format, checksum of what follows, width, rows
_FORMAT = b"feature1"


@dataclass(frozen=True, eq=False)
class CachedRows:
    """The features [N, width] of examples, how many had to be computed, and the bytes of their file."""

    rows: Rows
    computed: int
    stored_bytes: int


class FeatureCache:
    """A folder of features of at most `limit` bytes, the least recently used removed first.

    Without a folder, or with a limit of 0, nothing is kept. Processes may share it. A disk that fails costs
    time alone.
    """

    def __init__(self, folder: Path | None = None, *, limit: int = 0) -> None:
        self._folder, self._limit = folder, limit
        self._made = set[bytes]()

    def features(
        self,
        name: str,
        digests: list[bytes],
        make: Callable[[Places], Rows],
        *,
        width: int,
        kind: FeatureType = "fp32",
    ) -> CachedRows:
        """The features of the examples with these digests; `make` computes those at some places of the list.

        `name` says of which frozen part and owner they are. With `fp16` they are rounded, kept or not.
        """
        store = np.dtype(TYPES[kind])
        kept, rows = self._read(name, width, store)
        first = {digest: place for place, digest in reversed([*enumerate(digests)])}
        new = np.array(sorted(first[digest] for digest in first.keys() - kept.keys()), dtype=np.int64)
        self._made.update(digests[place] for place in new)
        held = {**kept, **{digests[place]: len(kept) + number for number, place in enumerate(new)}}
        if len(new):
            rows = np.concatenate([rows, _round_rows(make(new), store)])
        rows = rows[[held[digest] for digest in digests]] if digests else rows[:0]
        places = sorted(first.values())[: self._room(rows)]
        if {digests[place] for place in places} != kept.keys():
            self._write(name, b"".join(digests[place] for place in places), rows[places])
        return CachedRows(rows.astype(np.float32), len(new), self._note_use(name))

    def count_made(self, digests: Iterable[bytes]) -> int:
        """How many of these examples' features were computed since this cache was opened."""
        return len(self._made.intersection(digests))

    def _room(self, rows: NDArray[Any]) -> int:
        """The number of rows that fit into a file."""
        row = DIGEST + int(rows.shape[1]) * rows.itemsize
        return max(0, self._limit - _HEADER.size) // row

    def _path(self, name: str) -> Path | None:
        if self._folder is None or self._limit <= 0:
            return None
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()}{SUFFIX}"

    def _read(self, name: str, width: int, store: np.dtype[Any]) -> tuple[dict[bytes, int], NDArray[Any]]:
        """The kept rows, and the place of each digest among them; none if the file is missing or damaged."""
        path, nothing = self._path(name), (dict[bytes, int](), np.zeros((0, width), store))
        try:
            data = b"" if path is None else path.read_bytes()
        except OSError:
            return nothing
        if len(data) < _HEADER.size:
            return nothing
        form, checksum, columns, count = _HEADER.unpack_from(data)
        content = memoryview(data)[_HEADER.size :]
        fits = (form, columns, len(content)) == (_FORMAT, width, count * (DIGEST + width * store.itemsize))
        if not fits or zlib.crc32(content) != checksum:
            return nothing
        digests = bytes(content[: count * DIGEST])
        rows = np.frombuffer(content[count * DIGEST :], store).reshape(count, width)
        return {digests[n * DIGEST : (n + 1) * DIGEST]: n for n in range(count)}, rows

    def _write(self, name: str, digests: bytes, rows: NDArray[Any]) -> None:
        path = self._path(name)
        if path is None:
            return
        content = digests + rows.tobytes()
        header = _HEADER.pack(_FORMAT, zlib.crc32(content), rows.shape[1], len(rows))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._make_room(path, len(header) + len(content))
            atomic_files.check_free(path.parent, len(header) + len(content))
            atomic_files.write_synced(path, header + content)
        except (OSError, PeerError) as error:
            log.warning("features are not kept: %s", error)

    def _make_room(self, path: Path, size: int) -> None:
        """Remove the files that were used longest ago until `size` bytes fit for `path`."""
        others = list[tuple[int, int, Path]]()
        for each in path.parent.glob(f"*{SUFFIX}"):
            # Another process may remove it meanwhile.
            stat = each.stat() if each.exists() and each != path else None
            if stat is not None:
                others.append((stat.st_mtime_ns, stat.st_size, each))
        total = size + sum(bytes_ for _, bytes_, _ in others)
        for _, bytes_, file in sorted(others):
            if total > self._limit:
                file.unlink(missing_ok=True)
                total -= bytes_

    def _note_use(self, name: str) -> int:
        """Let the file count as used now; returns its bytes."""
        path = self._path(name)
        try:
            if path is None:
                return 0
            os.utime(path)
            return path.stat().st_size
        except OSError:
            return 0


def features_of_parts(
    cache: FeatureCache,
    name: str,
    parts: Sequence[LabelledData],
    how: object,
    make: Callable[[Places], Rows],
    *,
    width: int,
    kind: FeatureType = "fp32",
) -> tuple[list[Rows], KeptFeatures]:
    """The features of the examples of each part; those that the cache lacks are made. Also what is kept.

    Their places count through all parts. `how` is what else the numbers depend on.
    """
    digests = [digest for data in parts for digest in digest_examples(data.images)]
    taken = parts[0].preprocessing
    about = (name, taken.scale, taken.mean, taken.std, parts[0].input_shape, parts[0].images.dtype, kind)
    kept = cache.features(f"{about} {how}", digests, make, width=width, kind=kind)
    if kept.computed:
        text = "frozen layers ran on %d of %d examples; %.1f MB of features are kept"
        log.info(text, kept.computed, len(digests), kept.stored_bytes / 1e6)
    counts = KeptFeatures(examples=len(digests), computed=cache.count_made(digests), bytes=kept.stored_bytes)
    return np.split(kept.rows, np.cumsum([len(data) for data in parts])[:-1]), counts


def inputs_at(parts: Sequence[LabelledData], places: Places) -> Rows:
    """The inputs of the examples at these places of all parts together, in order."""
    ends = np.cumsum([len(data) for data in parts])
    owners = np.searchsorted(ends, places, side="right")
    each = [
        data.subset(places[owners == number] - (ends[number] - len(data)))
        for number, data in enumerate(parts)
        if (owners == number).any()
    ]
    return np.concatenate([data.inputs() for data in each])


@dataclass(frozen=True, eq=False)
class StillPart:
    """What is the same in every round: the `arrays` that no device trains, with a `name` of their values.

    The `cache` has features of the examples of this `owner`.
    """

    arrays: frozenset[str]
    name: str
    cache: FeatureCache
    owner: str


_kept_digests: dict[int, tuple[ReferenceType[NDArray[Any]], list[bytes]]] = {}


def keep_digests(images: NDArray[Any], kept: list[bytes]) -> None:
    """Let `digest_examples` take the digests of this array from `kept`, which its first call fills.

    A simulation reads a device's examples anew in every round, and they are always the same.
    """
    number = id(images)
    _kept_digests[number] = ref(images, lambda _: _kept_digests.pop(number, None)), kept


def digest_examples(images: NDArray[Any]) -> list[bytes]:
    """The digests of examples [N, ...] by their bytes."""
    _, kept = _kept_digests.get(id(images), (None, list[bytes]()))
    if not kept:
        each = np.ascontiguousarray(images)
        kept.extend(hashlib.blake2b(one.data, digest_size=DIGEST).digest() for one in each)
    return kept


def _round_rows(rows: Rows, store: np.dtype[Any]) -> NDArray[Any]:
    if store.itemsize == rows.itemsize:
        return rows
    largest = np.finfo(store).max
    return np.clip(rows, -largest, largest).astype(store)
