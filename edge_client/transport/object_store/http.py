"""Blobs over HTTP(S), with the standard library: downloads in ranges, uploads as a stream.

No redirect is followed and no proxy used. Of a response only its length is trusted; the digest verifies the
bytes. An interrupted transfer resumes where it stopped.
"""

import http.client
import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import TlsFiles
from schemas.errors import ConfigError, EdgeError
from schemas.messages.blobs import DIGEST_HEADER, strip_signature
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, ChunkSet

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
ATTEMPTS = 3  # Number of consecutive attempts without progress before a transfer ends
PAUSE_S = 1.0
BLOCK_BYTES = 256 * 1024
DONE = frozenset({200, 201, 204})
EXPIRED = frozenset({401, 403})
BUSY = frozenset({408, 409, 416, 429, 500, 502, 503, 504})  # Statuses that a later attempt may not meet again

Stopped = threading.Event


class RequestRefused(EdgeError):
    def __init__(self, status: int, what: str) -> None:
        super().__init__(f"the store answered {status} to {what}")
        self.status = status


class HttpClient:
    """Sends requests; https trusts the system's authorities and that of `ca`.

    With `only_tls`, used together with a broker with TLS, plain HTTP is refused.
    """

    def __init__(
        self, *, ca: Path | None = None, only_tls: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._ca, self._only_tls, self._timeout_s = ca, only_tls, timeout_s

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        try:
            if self._ca is not None:
                context.load_verify_locations(self._ca)
        except OSError as error:
            raise ConfigError(f"no certificate can be read there: {error}", place=self._ca) from error
        return context

    @contextmanager
    def ask(
        self, method: str, url: str, headers: dict[str, str] | None = None, body: Any = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Send one request on its own connection; raises `OSError` or `HTTPException` if it is cut."""
        parts = urlsplit(url)
        if parts.hostname is None or parts.scheme not in ("http", "https"):
            raise RequestRefused(400, strip_signature(url))
        if parts.scheme == "http" and self._only_tls:
            raise RequestRefused(
                426, f"{strip_signature(url)}: only https is used together with a broker with TLS"
            )
        connect: Callable[..., http.client.HTTPConnection] = http.client.HTTPConnection
        if parts.scheme == "https":
            connect = partial(http.client.HTTPSConnection, context=self._context)
        connection = connect(parts.hostname, parts.port, timeout=self._timeout_s, blocksize=BLOCK_BYTES)
        try:
            connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=headers or {})
            yield connection.getresponse()
        finally:
            connection.close()


def http_client(tls: TlsFiles | None) -> HttpClient:
    """A client with the authority of the broker's connection, and limited to TLS if that uses TLS."""
    return HttpClient(ca=tls.ca if tls else None, only_tls=tls is not None)


@dataclass(frozen=True)
class TransferOutcome:
    """The result of a transfer; `expired`: the store refused its address.

    Of a download, `have` are the present chunks and `moved` the number of bytes received.
    """

    done: bool
    expired: bool = False
    have: ChunkSet = NO_CHUNKS
    moved: int = 0


def fetch_blob(
    web: HttpClient, url: str, ref: BlobRef, store: BlobStore, stopped: Stopped
) -> TransferOutcome:
    """Download the missing chunks of a blob into its part file, with retries."""
    have, moved, all_chunks = store.present(ref), 0, ChunkSet.first(ref.chunks)

    def some() -> bool:
        nonlocal have, moved
        for index in _chunks(web, url, ref, have, store):
            have = have.adding(index)
            moved += ref.chunk_size(index)
            if stopped.is_set():
                break
        return have == all_chunks

    outcome = TransferOutcome(True) if have == all_chunks else _persist(some, lambda: len(have), stopped, url)
    return replace(outcome, have=have, moved=moved)


def put_blob(
    web: HttpClient, url: str, ref: BlobRef, store: BlobStore, *, resumable: bool, stopped: Stopped
) -> TransferOutcome:
    """Upload a blob with retries; a `resumable` upload sends only what the store lacks."""
    there = 0

    def some() -> bool:
        nonlocal there
        if resumable:
            there = _ask_held_bytes(web, url, ref)
        path = store.blob_path(ref.digest)
        whole = there == ref.size
        return whole or send_file(web, url, ref, path, there, resumable=resumable, stopped=stopped)

    return _persist(some, lambda: there, stopped, url)


def _persist(
    some: Callable[[], bool], progress: Callable[[], int], stopped: Stopped, url: str
) -> TransferOutcome:
    """Call `some` until it is done, is refused, or makes no progress `ATTEMPTS` times in a row."""
    left = ATTEMPTS
    while left and not stopped.is_set():
        before = progress()
        try:
            if some():
                return TransferOutcome(True)
        except RequestRefused as error:
            log.warning("%s", error)
            if error.status not in BUSY:
                return TransferOutcome(False, expired=error.status in EXPIRED)
        except (OSError, http.client.HTTPException) as error:
            log.warning("%s: cut off: %s", strip_signature(url), error or type(error).__name__)
        left = ATTEMPTS if progress() != before else left - 1
        if left:
            stopped.wait(PAUSE_S * (ATTEMPTS - left))
    return TransferOutcome(False)


def _chunks(web: HttpClient, url: str, ref: BlobRef, have: ChunkSet, store: BlobStore) -> Iterator[int]:
    """Download the first run of missing chunks; yields the number of each written chunk."""
    first, count = have.gap(ref.chunks) or (0, ref.chunks)
    start = first * ref.chunk_bytes
    stop = min((first + count) * ref.chunk_bytes, ref.size)
    headers = {"Range": f"bytes={start}-{stop - 1}"} if stop - start < ref.size else {}
    with web.ask("GET", url, headers) as answer:
        if answer.status == 200:
            # A store may ignore the range and send the whole blob.
            first, count, start, stop = 0, ref.chunks, 0, ref.size
        elif answer.status != 206 or not answer.headers.get("Content-Range", "").startswith(
            f"bytes {start}-{stop - 1}/"
        ):
            raise RequestRefused(answer.status, f"GET {strip_signature(url)}")
        if answer.length is not None and answer.length != stop - start:
            raise RequestRefused(
                422, f"GET {strip_signature(url)} with {answer.length} bytes, {stop - start} are expected"
            )
        for index in range(first, first + count):
            store.write_chunk(ref, index, _exactly(answer, ref.chunk_size(index)))
            yield index


def _exactly(answer: http.client.HTTPResponse, count: int) -> bytes:
    data = answer.read(count)
    if len(data) != count:
        raise ConnectionError(f"{len(data)} of {count} bytes")
    return data


def _ask_held_bytes(web: HttpClient, url: str, ref: BlobRef) -> int:
    """Number of bytes of an upload that the store has already."""
    headers = {DIGEST_HEADER: ref.digest, "Content-Range": f"bytes */{ref.size}", "Content-Length": "0"}
    with web.ask("PUT", url, headers) as answer:
        if answer.status in DONE:
            return ref.size
        if answer.status != 308:
            raise RequestRefused(answer.status, f"PUT {strip_signature(url)}")
        found = re.fullmatch(r"bytes=0-(\d+)", answer.headers.get("Range", ""))
        return min(int(found[1]) + 1, ref.size) if found else 0


class _Body:
    """The rest of a file, read while it is sent; aborts once `stopped` is set."""

    def __init__(self, file: BinaryIO, stopped: Stopped) -> None:
        self._file, self._stopped = file, stopped

    def read(self, count: int = -1) -> bytes:
        if self._stopped.is_set():
            raise ConnectionAbortedError("no longer wanted")
        return self._file.read(count)


def send_file(
    web: HttpClient, url: str, ref: BlobRef, path: Path, start: int, *, resumable: bool, stopped: Stopped
) -> bool:
    headers = {"Content-Length": str(ref.size - start)}
    if resumable:
        headers[DIGEST_HEADER] = ref.digest
        headers["Content-Range"] = f"bytes {start}-{ref.size - 1}/{ref.size}"
    with path.open("rb") as file:
        file.seek(start)
        with web.ask("PUT", url, headers, _Body(file, stopped)) as answer:
            if answer.status not in DONE:
                raise RequestRefused(answer.status, f"PUT {strip_signature(url)}")
    return True
