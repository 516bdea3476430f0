"""Object store transfers, each in its own thread, so that a slow store does not block the device."""

import logging
import threading
from collections.abc import Callable
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.link_events import Inbox
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient, TransferOutcome
from edge_client.transport.object_store.http_transfers import (
    Fetch,
    FetchEnded,
    ObjectStoreCommand,
    ObjectStoreEvent,
    Put,
    PutEnded,
)
from schemas.tensors.chunks import BlobRef

log = logging.getLogger(__name__)


class TransferThreads:
    """Runs a session's transfers; each reports `FetchEnded` or `PutEnded` to the inbox."""

    def __init__(self, inbox: Inbox, store: BlobStore, web: HttpClient) -> None:
        self._inbox, self._store, self._web = inbox, store, web
        self._stopped = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def do(self, command: ObjectStoreCommand) -> None:
        """Begin a transfer, or stop all of them."""
        match command:
            case Fetch(ref, url):
                fetch = partial(over_http.fetch_blob, self._web, url, ref, self._store)
                self._begin(ref, fetch, lambda out: FetchEnded(ref.digest, out.have, out.expired, out.moved))
            case Put(ref, url, resumable):
                put = partial(over_http.put_blob, self._web, url, ref, self._store, resumable=resumable)
                self._begin(ref, put, lambda out: PutEnded(ref.digest, out.done, out.expired))
            case _:
                self.stop()

    def stop(self) -> None:
        """Stop all transfers within a block, without an event."""
        self._stopped.set()
        self._stopped = threading.Event()

    def _begin(
        self,
        ref: BlobRef,
        transfer: Callable[..., TransferOutcome],
        event_of: Callable[[TransferOutcome], ObjectStoreEvent],
    ) -> None:
        before, stopped = self._threads.get(ref.digest), self._stopped

        def run() -> None:
            # One writer per blob: an earlier transfer of it ends first.
            if before is not None:
                before.join()
            try:
                outcome = transfer(stopped=stopped)
            except Exception as error:
                # Any error ends the transfer: the blob can still go over the broker.
                log.warning("the object store transfer failed (%s: %s)", type(error).__name__, error)
                outcome = TransferOutcome(False)
            if not stopped.is_set():
                self._inbox.put(event_of(outcome))

        self._threads = {name: thread for name, thread in self._threads.items() if thread.is_alive()}
        self._threads[ref.digest] = threading.Thread(target=run, name="object-store", daemon=True)
        self._threads[ref.digest].start()
