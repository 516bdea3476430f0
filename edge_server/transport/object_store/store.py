"""The run's object store: large blobs outside the broker, and the updates that devices put there."""

import logging
import threading
from collections.abc import Iterable

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient
from edge_server.transport.object_store.signed_urls import UrlSigner
from schemas.errors import PeerError
from schemas.messages import Task, TrainTask, Update, encode_message
from schemas.messages.object_store import Addresses
from schemas.messages.object_store import ObjectStoreTerms as Terms
from schemas.tensors.blobs import BlobRef

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
