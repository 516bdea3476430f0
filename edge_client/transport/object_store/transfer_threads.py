"""Object store transfers, each in its own thread, so that a slow store does not block the device."""

import logging
import threading
from collections.abc import Callable

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
            case Fetch(ref):
                self._begin(ref.digest, lambda stopped: self._fetch(command, stopped))
            case Put(ref):
                self._begin(ref.digest, lambda stopped: self._put(command, stopped))
            case _:
                self.stop()

    def stop(self) -> None:
        """Stop all transfers within a block, without an event."""
        self._stopped.set()
        self._stopped = threading.Event()

    def _begin(self, digest: str, transfer: Callable[[threading.Event], ObjectStoreEvent]) -> None:
        before, stopped = self._threads.get(digest), self._stopped

        def run() -> None:
            # One writer per blob: an earlier transfer of it ends first.
            if before is not None:
                before.join()
            ended = transfer(stopped)
            if not stopped.is_set():
                self._inbox.put(ended)

        self._threads = {name: thread for name, thread in self._threads.items() if thread.is_alive()}
        self._threads[digest] = threading.Thread(target=run, name="object-store", daemon=True)
        self._threads[digest].start()

    def _fetch(self, command: Fetch, stopped: threading.Event) -> FetchEnded:
        ref = command.ref
        outcome = _safely(lambda: over_http.fetch(self._web, command.url, ref, self._store, stopped))
        return FetchEnded(ref.digest, outcome.have, outcome.expired, outcome.moved)

    def _put(self, command: Put, stopped: threading.Event) -> PutEnded:
        ref, resumable = command.ref, command.resumable
        outcome = _safely(
            lambda: over_http.put(
                self._web, command.url, ref, self._store, resumable=resumable, stopped=stopped
            )
        )
        return PutEnded(ref.digest, outcome.done, outcome.expired)


def _safely(transfer: Callable[[], TransferOutcome]) -> TransferOutcome:
    """Run a transfer; any error ends it, since the blob can still go over the broker."""
    try:
        return transfer()
    except Exception as error:
        log.warning("the object store transfer failed (%s: %s)", type(error).__name__, error)
        return TransferOutcome(False)
