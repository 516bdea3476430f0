"""The folder of our own object store: objects by name and digest, and partial uploads.

    blobs/<sha256>                          blobs that the server offers
    updates/<run>/<attempt>/<device>        a device's upload, stored as <this name>/<sha256>

An object is always whole and matches its digest. A device has at most one object and one partial upload.
"""

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
"""The names allowed for GET, and for PUT; none of them leaves the folder."""


def object_at(place: str, digest: str) -> str | None:
    """The name of an object uploaded to `place`; None if no object of that digest belongs there."""
    found = PLACE.fullmatch(place)
    if found is None or not re.fullmatch(_DIGEST, digest):
        return None
    if found["digest"] is None:
        return f"{place}/{digest}"
    return place if found["digest"] == digest else None


class ObjectFiles:
    """Objects and partial uploads; those older than `keep_s` are deleted after the next upload."""

    def __init__(self, folder: Path, *, keep_s: float) -> None:
        self._objects, self._parts, self._keep_s = folder / "objects", folder / "parts", keep_s
        self._busy: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        for path in (self._objects, self._parts):
            path.mkdir(parents=True, exist_ok=True)

    def object_path(self, name: str) -> Path:
        return self._objects / name

    def part(self, place: str, digest: str) -> Path:
        """The path of the partial upload of that digest."""
        return self._parts / f"{hashlib.sha256(place.encode()).hexdigest()}.{digest}"

    def held_bytes(self, place: str, digest: str) -> int:
        """The number of bytes of the partial upload."""
        with contextlib.suppress(FileNotFoundError):
            return self.part(place, digest).stat().st_size
        return 0

    @contextlib.contextmanager
    def writing(self, place: str) -> Iterator[bool]:
        """Lock an upload for the duration of the block; yields False if another request holds it."""
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
        """The path of the partial upload; that of another digest is deleted."""
        part = self.part(place, digest)
        for other in self._parts.glob(f"{part.stem}.*"):
            if other != part:
                other.unlink()
        return part

    def place(self, place: str, digest: str) -> bool:
        """Move a finished upload to its object's path atomically; False if its digest does not match."""
        part, name = self.part(place, digest), object_at(place, digest)
        with part.open("rb") as file:
            if name is None or hashlib.file_digest(file, "sha256").hexdigest() != digest:
                part.unlink()
                return False
        path = self.object_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part.replace(path)
        if name != place:
            for other in path.parent.iterdir():
                if other != path:
                    other.unlink()
        return True

    def remove(self, name: str) -> None:
        """Delete an object, and the folders that it leaves empty."""
        path = self.object_path(name)
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in path.relative_to(self._objects).parents[:-2]:
                (self._objects / folder).rmdir()

    def sweep(self) -> None:
        oldest = time.time() - self._keep_s
        for path in (*self._objects.rglob("*"), *self._parts.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file() and path.stat().st_mtime < oldest:
                    path.unlink()
