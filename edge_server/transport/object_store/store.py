"""The run's object store: large blobs outside the broker, and the updates that devices put there."""

import contextlib
import hashlib
import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient
from edge_server.transport.object_store.signed_urls import UrlSigner
from schemas.base import NAME_PATTERN
from schemas.errors import PeerError
from schemas.messages import Task, TrainTask, Update, encode_message
from schemas.messages.blobs import Addresses
from schemas.messages.blobs import ObjectStoreTerms as Terms
from schemas.tensors.chunks import BlobRef

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


log = logging.getLogger(__name__)

OWN_SECONDS = 3600.0  # Seconds for which the server's own URLs are valid, including resumed transfers


class ObjectStore:
    """Optional: what fails here is logged, and the blob is sent in chunks instead.

    `terms` is its description in tasks. `publish`, `forget` and `collect` block.
    """

    def __init__(self, links: UrlSigner, web: HttpClient, *, above: int, seconds: float) -> None:
        self._links, self._web, self._seconds = links, web, seconds
        self.terms = Terms(address=links.address, above=above, resumable=links.resumable)
        self._published: frozenset[str] = frozenset()
        self._locks: dict[str, threading.Lock] = {}

    def publish(self, refs: Iterable[BlobRef], store: BlobStore) -> None:
        """Upload the blobs that are large enough, unless they are there."""
        large = {ref.digest: ref for ref in refs if self.terms.holds(ref)}
        for digest in large.keys() - self._published:
            try:
                there = self._has(digest) or self._put(large[digest], store)
            except Exception as error:
                # Stop at the first failure: a round is waiting.
                log.warning("the object store does not answer: %s", error)
                there = False
            if not there:
                log.warning("the object store takes no blobs: large ones are sent in chunks")
                return
            self._published |= {digest}

    def forget(self, keep: Iterable[str] = ()) -> None:
        """Remove all published blobs except those to `keep`."""
        self._locks.clear()
        for digest in self._published - frozenset(keep):
            self._published -= {digest}
            self._remove(_blob(digest))

    def with_addresses(self, task: Task, device: str, limit: int) -> Task:
        """The task with URLs for its device: of published blobs, and for an update of up to `limit` bytes."""
        if task.depot != self.terms:
            return task
        get = {
            name: self._links.url("GET", _blob(ref.digest), seconds=self._seconds)
            for name, ref in task.blobs.items()
            if ref.digest in self._published
        }
        put = None
        if isinstance(task, TrainTask) and limit > self.terms.above:
            name = _update(task.run, task.attempt, device)
            put = self._links.url("PUT", name, seconds=self._seconds, most=limit)
        addressed = task.model_copy(update={"addresses": Addresses(get=get, put=put)})
        try:
            encode_message(addressed)
        except PeerError:
            # A task with long lists of channels has no room for URLs.
            return task
        return addressed

    def collect(self, update: Update, store: BlobStore) -> bool:
        """Fetch a device's update into `store` and verify it; False if that fails.

        The fetched object is removed. An interrupted fetch resumes when called again.
        """
        ref, url = update.blob, self._links.url("GET", self._place(update), seconds=OWN_SECONDS)
        with self._locks.setdefault(ref.digest, threading.Lock()):
            whole = ref.digest in store or self._fetch(url, ref, store)
            if whole:
                whole = store.verify(ref)
                self._remove(self._place(update))
        return whole

    def _place(self, update: Update) -> str:
        """The name under which a device has put its update."""
        name = _update(update.run, update.attempt, update.device)
        return f"{name}/{update.blob.digest}" if self._links.resumable else name

    def _fetch(self, url: str, ref: BlobRef, store: BlobStore) -> bool:
        try:
            return over_http.fetch_blob(self._web, url, ref, store, threading.Event()).done
        except Exception as error:
            log.warning("update %s cannot be fetched from the object store: %s", ref.digest[:16], error)
            return False

    def _has(self, digest: str) -> bool:
        with self._web.ask("HEAD", self._links.url("HEAD", _blob(digest), seconds=60)) as answer:
            return answer.status == 200

    def _put(self, ref: BlobRef, store: BlobStore) -> bool:
        url = self._links.url("PUT", _blob(ref.digest), seconds=OWN_SECONDS, most=ref.size)
        resumable, never = self._links.resumable, threading.Event()
        return over_http.put_blob(self._web, url, ref, store, resumable=resumable, stopped=never).done

    def _remove(self, name: str) -> None:
        try:
            with self._web.ask("DELETE", self._links.url("DELETE", name, seconds=60)):
                pass
        except Exception as error:
            log.info("%s stays in the object store: %s", name, error)


def _blob(digest: str) -> str:
    return f"blobs/{digest}"


def _update(run: str, attempt: int, device: str) -> str:
    return f"updates/{run}/{attempt}/{device}"
