"""Downloads and uploads over HTTP that are cut, refused or wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import TlsFiles
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient, TransferOutcome, http_client
from edge_server.transport.object_store.http_service import ObjectStoreHandler
from tests.chunk_bits import chunks_of
from tests.edge_server.fleet.alerts.receivers import serving
from tests.edge_server.transport.object_store.conftest import CHUNK, DATA, PLACE, HttpStore, ask


@pytest.fixture
def theirs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "theirs", durable=False)


def fetch(url: str, http_store: HttpStore, store: BlobStore) -> TransferOutcome:
    return over_http.fetch_blob(HttpClient(timeout_s=30), url, http_store.ref, store, threading.Event())


def published(http_store: HttpStore) -> str:
    http_store.put(http_store.links.url("PUT", http_store.blob(), seconds=60, most=len(DATA)))
    return http_store.links.url("GET", http_store.blob(), seconds=60)


class Cut(ConnectionError):
    """The connection was lost."""


def test_an_interrupted_download_continues_with_the_missing_bytes(
    http_store: HttpStore, theirs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cuts, each after half of the requested range: 100 chunks, then 50, then the last 51."""
    url, ranges = published(http_store), []
    get = ObjectStoreHandler.answer_get

    class HalfSocket:
        def __init__(self, socket: Any) -> None:
            self._socket = socket

        def __getattr__(self, name: str) -> Any:
            return getattr(self._socket, name)

        def sendfile(self, file: Any, first: int, count: int) -> None:
            self._socket.sendfile(file, first, count // 2 // CHUNK * CHUNK)
            raise Cut

    def cut(self: Any, name: str, most: int) -> None:
        ranges.append(self.headers.get("Range"))
        if len(ranges) <= 2:
            self.connection = HalfSocket(self.connection)
        get(self, name, most)

    monkeypatch.setattr(ObjectStoreHandler, "answer_get", cut)
    assert fetch(url, http_store, theirs).done
    assert ranges == [None, "bytes=102400-204809", "bytes=153600-204809"]
    assert theirs.verify(http_store.ref)


def test_only_missing_chunks_are_requested(
    http_store: HttpStore, theirs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks 0, 1 and 3 came over the broker: chunk 2 is requested, then all chunks from 4 on."""
    url, ranges = published(http_store), []
    get = ObjectStoreHandler.answer_get

    def noted(self: Any, name: str, most: int) -> None:
        ranges.append(self.headers.get("Range"))
        get(self, name, most)

    monkeypatch.setattr(ObjectStoreHandler, "answer_get", noted)
    for index in (0, 1, 3):
        theirs.write_chunk(http_store.ref, index, DATA[index * CHUNK : (index + 1) * CHUNK])
    assert fetch(url, http_store, theirs).done
    assert ranges == ["bytes=2048-3071", "bytes=4096-204809"]
    assert theirs.verify(http_store.ref)


def test_an_interrupted_upload_continues_with_the_missing_bytes(http_store: HttpStore) -> None:
    url = http_store.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    piece = {"Content_Range": f"bytes 0-102399/{len(DATA)}", "X_Blob_Digest": http_store.ref.digest}
    assert ask("PUT", url, DATA[:102_400], **piece)[0] == 308
    sent = []
    send = over_http.send_file

    def noted(web: HttpClient, url: str, ref: Any, path: Path, start: int, **how: Any) -> bool:
        sent.append(start)
        return send(web, url, ref, path, start, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(over_http, "send_file", noted)
        assert http_store.put(url).done
        assert http_store.put(url).done
    assert sent == [102_400]
    assert http_store.holds(f"{PLACE}/{http_store.ref.digest}")


def test_an_expired_address_is_distinguished_from_a_failing_one(
    http_store: HttpStore, theirs: BlobStore
) -> None:
    published(http_store)
    ended = http_store.links.url("GET", http_store.blob(), seconds=-2)
    assert fetch(ended, http_store, theirs) == TransferOutcome(False, expired=True)
    unknown = http_store.links.url("GET", f"blobs/{'0' * 64}", seconds=60)
    assert fetch(unknown, http_store, theirs) == TransferOutcome(False)
    assert http_store.put(http_store.links.url("PUT", PLACE, seconds=-2, most=len(DATA))) == TransferOutcome(
        False, expired=True
    )


def test_an_unreachable_store_is_given_up(http_store: HttpStore, theirs: BlobStore) -> None:
    assert fetch("http://127.0.0.1:9/blobs/x?y", http_store, theirs) == TransferOutcome(False)
    assert http_store.put("http://127.0.0.1:9/blobs/x?y") == TransferOutcome(False)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A store that gives the same answer to every request."""

    class Always(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Always)) as port:
        yield f"http://127.0.0.1:{port}/x?y"


def test_bytes_with_another_digest_do_not_become_the_blob(http_store: HttpStore, theirs: BlobStore) -> None:
    with answering(200, DATA[::-1]) as url:
        assert fetch(url, http_store, theirs).done
    assert not theirs.verify(http_store.ref)
    assert theirs.present(http_store.ref) == chunks_of(0)


def test_a_store_without_ranges_is_read_from_the_beginning(http_store: HttpStore, theirs: BlobStore) -> None:
    theirs.write_chunk(http_store.ref, 0, DATA[:CHUNK])
    with answering(200, DATA) as url:
        assert fetch(url, http_store, theirs).done
    assert theirs.verify(http_store.ref)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (301, {"Location": "file:///etc/passwd"}),
        (200, {"Content_Length": "204811"}),
        (206, {"Content_Range": "bytes 5-204809/204810"}),
        (500, {}),
    ],
)
def test_an_answer_that_does_not_match_the_request_is_discarded(
    http_store: HttpStore, theirs: BlobStore, status: int, headers: dict[str, str]
) -> None:
    with answering(status, b"", **headers) as url:
        assert fetch(url, http_store, theirs) == TransferOutcome(False)
    assert theirs.parts() == set()


def test_with_tls_at_the_broker_plain_http_is_refused(http_store: HttpStore, theirs: BlobStore) -> None:
    url, careful = published(http_store), http_client(TlsFiles())
    assert over_http.fetch_blob(careful, url, http_store.ref, theirs, threading.Event()) == TransferOutcome(
        False
    )
    assert theirs.parts() == set()
    assert fetch(url, http_store, theirs).done


def test_a_stopped_transfer_ends(http_store: HttpStore, theirs: BlobStore) -> None:
    url, stopped = published(http_store), threading.Event()
    stopped.set()
    assert over_http.fetch_blob(HttpClient(), url, http_store.ref, theirs, stopped) == TransferOutcome(False)
    place = http_store.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    assert not over_http.put_blob(
        HttpClient(), place, http_store.ref, http_store.mine, resumable=True, stopped=stopped
    ).done
