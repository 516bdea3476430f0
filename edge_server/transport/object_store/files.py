"""The folder behind our own store: objects by name and digest, and what has come of others.

    blobs/<sha256>                          what the server gives out
    updates/<run>/<attempt>/<device>        where a device may put something, kept as <that>/<sha256>

An object is what its digest says and whole at any time; a device has one object there, and part of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from schemas.names import NAME_PATTERN

_NAME, _DIGEST = NAME_PATTERN.strip("^$"), "[0-9a-f]{64}"
_UPDATE = rf"updates/{_NAME}/[0-9]{{1,12}}/{_NAME}"
OBJECT = re.compile(rf"(?:{_NAME}/)*(?:blobs/{_DIGEST}|{_UPDATE}/{_DIGEST})")
PLACE = re.compile(rf"(?:{_NAME}/)*(?:blobs/(?P<digest>{_DIGEST})|{_UPDATE})")
"""All that may be named to get, and to put: no such name leaves its folder."""


def object_at(place: str, digest: str) -> str | None:
    """The name of the object that is put at a place; None where none of that digest belongs there."""
    found = PLACE.fullmatch(place)
    if found is None or not re.fullmatch(_DIGEST, digest):
        return None
    if found["digest"] is None:
        return f"{place}/{digest}"
    return place if found["digest"] == digest else None


class ObjectFiles:
    """Objects and parts of them; what is older than `keep_s` goes when another one comes."""

    def __init__(self, folder: Path, *, keep_s: float) -> None:
        self._objects, self._parts, self._keep_s = folder / "objects", folder / "parts", keep_s
        self._busy: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        for path in (self._objects, self._parts):
            path.mkdir(parents=True, exist_ok=True)

    def path(self, name: str) -> Path:
        """Where an object is, or would be."""
        return self._objects / name

    def part(self, place: str, digest: str) -> Path:
        """Where the object of that digest grows."""
        return self._parts / f"{hashlib.sha256(place.encode()).hexdigest()}.{digest}"

    def held(self, place: str, digest: str) -> int:
        """How many of its bytes have come."""
        with contextlib.suppress(FileNotFoundError):
            return self.part(place, digest).stat().st_size
        return 0

    @contextlib.contextmanager
    def writing(self, place: str) -> Iterator[bool]:
        """Whether nobody else writes there, for as long as the block lasts."""
        with self._lock:
            free = place not in self._busy
            self._busy |= {place}
        try:
            yield free
        finally:
            if free:
                with self._lock:
                    self._busy -= {place}

    def begin(self, place: str, digest: str) -> Path:
        """The part that grows there; one of another object goes."""
        part = self.part(place, digest)
        for other in self._parts.glob(f"{part.stem}.*"):
            if other != part:
                other.unlink()
        return part

    def place(self, place: str, digest: str) -> bool:
        """Put what has grown where it belongs, all at once; False where its digest is another one."""
        part, name = self.part(place, digest), object_at(place, digest)
        with part.open("rb") as file:
            if name is None or hashlib.file_digest(file, "sha256").hexdigest() != digest:
                part.unlink()
                return False
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
        if name != place:
            for other in path.parent.iterdir():
                if other != path:
                    other.unlink()
        return True

    def remove(self, name: str) -> None:
        """Forget an object, and the folders that it leaves empty."""
        path = self.path(name)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.relative_to(self._objects).parents[:-2]:
                (self._objects / folder).rmdir()

    def sweep(self) -> None:
        """Forget what nobody has taken away in time."""
        oldest = time.time() - self._keep_s
        for path in (*self._objects.rglob("*"), *self._parts.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_mtime < oldest:
                    path.unlink()
