"""What a device gets and puts past the broker: cut in the middle, refused, or wrong."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_address import TlsFiles
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient, TransferOutcome, http_client
from edge_server.transport.object_store.http_handler import ObjectStoreHandler
from tests.edge_server.transport.object_store.conftest import CHUNK, DATA, PLACE, Shop, ask


@pytest.fixture
def theirs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "theirs", durable=False)


def fetch(url: str, shop: Shop, store: BlobStore) -> TransferOutcome:
    return over_http.fetch(HttpClient(timeout_s=30), url, shop.ref, store, threading.Event())


def published(shop: Shop) -> str:
    shop.put(shop.links.url("PUT", shop.blob(), seconds=60, most=len(DATA)))
    return shop.links.url("GET", shop.blob(), seconds=60)


class Cut(ConnectionError):
    """The connection is gone."""


def test_a_download_that_is_cut_in_the_middle_goes_on_with_what_is_missing(
    shop: Shop, theirs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two cuts, each after half of what was asked for: 100 chunks, then 50, then the last 51."""
    url, asked = published(shop), []
    get = ObjectStoreHandler._get

    class HalfSocket:
        def __init__(self, socket: Any) -> None:
            self._socket = socket

        def __getattr__(self, name: str) -> Any:
            return getattr(self._socket, name)

        def sendfile(self, file: Any, first: int, count: int) -> None:
            self._socket.sendfile(file, first, count // 2 // CHUNK * CHUNK)
            raise Cut

    def cut(self: Any, name: str, most: int) -> None:
        asked.append(self.headers.get("Range"))
        if len(asked) <= 2:
            self.connection = HalfSocket(self.connection)
        get(self, name, most)

    monkeypatch.setattr(ObjectStoreHandler, "_get", cut)
    assert fetch(url, shop, theirs).done
    assert asked == [None, "bytes=102400-204809", "bytes=153600-204809"]
    assert theirs.verify(shop.ref)


def test_only_what_is_missing_is_asked_for(
    shop: Shop, theirs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks 0, 1 and 3 have come over the broker: chunk 2 is asked for, then all from 4 on."""
    url, asked = published(shop), []
    get = ObjectStoreHandler._get

    def noted(self: Any, name: str, most: int) -> None:
        asked.append(self.headers.get("Range"))
        get(self, name, most)

    monkeypatch.setattr(ObjectStoreHandler, "_get", noted)
    for index in (0, 1, 3):
        theirs.write_chunk(shop.ref, index, DATA[index * CHUNK : (index + 1) * CHUNK])
    assert fetch(url, shop, theirs).done
    assert asked == ["bytes=2048-3071", "bytes=4096-204809"]
    assert theirs.verify(shop.ref)


def test_an_upload_that_is_cut_in_the_middle_goes_on_with_what_is_missing(shop: Shop) -> None:
    url = shop.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    piece = {"Content_Range": f"bytes 0-102399/{len(DATA)}", "X_Blob_Digest": shop.ref.digest}
    assert ask("PUT", url, DATA[:102_400], **piece)[0] == 308
    sent = []
    send = over_http._send

    def noted(web: HttpClient, url: str, ref: Any, path: Path, start: int, **how: Any) -> bool:
        sent.append(start)
        return send(web, url, ref, path, start, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(over_http, "_send", noted)
        assert shop.put(url).done
        assert shop.put(url).done
    assert sent == [102_400]
    assert shop.holds(f"{PLACE}/{shop.ref.digest}")


def test_an_address_that_has_ended_is_told_from_one_that_fails(shop: Shop, theirs: BlobStore) -> None:
    published(shop)
    ended = shop.links.url("GET", shop.blob(), seconds=-2)
    assert fetch(ended, shop, theirs) == TransferOutcome(False, expired=True)
    unknown = shop.links.url("GET", f"blobs/{'0' * 64}", seconds=60)
    assert fetch(unknown, shop, theirs) == TransferOutcome(False)
    assert shop.put(shop.links.url("PUT", PLACE, seconds=-2, most=len(DATA))) == TransferOutcome(
        False, expired=True
    )


def test_a_store_that_is_not_there_is_given_up(shop: Shop, theirs: BlobStore) -> None:
    assert fetch("http://127.0.0.1:9/blobs/x?y", shop, theirs) == TransferOutcome(False)
    assert shop.put("http://127.0.0.1:9/blobs/x?y") == TransferOutcome(False)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A store that answers everything alike."""

    class Always(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Always)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/x?y"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_bytes_that_are_not_those_of_the_digest_do_not_become_the_blob(shop: Shop, theirs: BlobStore) -> None:
    with answering(200, DATA[::-1]) as url:
        assert fetch(url, shop, theirs).done
    assert not theirs.verify(shop.ref)
    assert theirs.present(shop.ref) == 0


def test_a_store_without_ranges_is_heard_from_the_beginning(shop: Shop, theirs: BlobStore) -> None:
    theirs.write_chunk(shop.ref, 0, DATA[:CHUNK])
    with answering(200, DATA) as url:
        assert fetch(url, shop, theirs).done
    assert theirs.verify(shop.ref)


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (301, {"Location": "file:///etc/passwd"}),
        (200, {"Content_Length": "204811"}),
        (206, {"Content_Range": "bytes 5-204809/204810"}),
        (500, {}),
    ],
)
def test_what_is_no_answer_to_what_was_asked_brings_nothing(
    shop: Shop, theirs: BlobStore, status: int, headers: dict[str, str]
) -> None:
    with answering(status, b"", **headers) as url:
        assert fetch(url, shop, theirs) == TransferOutcome(False)
    assert theirs.parts() == set()


def test_beside_a_broker_with_tls_nothing_goes_in_the_clear(shop: Shop, theirs: BlobStore) -> None:
    url, careful = published(shop), http_client(TlsFiles())
    assert over_http.fetch(careful, url, shop.ref, theirs, threading.Event()) == TransferOutcome(False)
    assert theirs.parts() == set()
    assert fetch(url, shop, theirs).done


def test_a_transfer_that_is_no_longer_wanted_ends(shop: Shop, theirs: BlobStore) -> None:
    url, stopped = published(shop), threading.Event()
    stopped.set()
    assert over_http.fetch(HttpClient(), url, shop.ref, theirs, stopped) == TransferOutcome(False)
    place = shop.links.url("PUT", PLACE, seconds=60, most=len(DATA))
    assert not over_http.put(HttpClient(), place, shop.ref, shop.mine, resumable=True, stopped=stopped).done
