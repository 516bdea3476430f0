"""An object store on loopback, and a blob to send."""

import http.client
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient, TransferOutcome
from edge_server.transport.object_store.http_service import serve_objects
from edge_server.transport.object_store.signed_urls import HmacUrlSigner
from schemas.tensors.chunks import BlobRef

KEY = b"k" * 32
CHUNK = 1024
DATA = random.Random(0).randbytes(200 * CHUNK + 10)
PLACE = "updates/run-1/1/pi"


@dataclass
class HttpStore:
    """The store, the signer of its addresses, and the blobs of a device."""

    links: HmacUrlSigner
    folder: Path
    mine: BlobStore
    ref: BlobRef

    def put(self, url: str, ref: BlobRef | None = None) -> TransferOutcome:
        """Upload a blob of the device to `url`."""
        never = threading.Event()
        return over_http.put_blob(
            HttpClient(), url, ref or self.ref, self.mine, resumable=True, stopped=never
        )

    def blob(self) -> str:
        """The name of the blob in the addresses of the server."""
        return f"blobs/{self.ref.digest}"

    def holds(self, name: str) -> bool:
        """Whether the store has an object with that name."""
        return (self.folder / "objects" / name).is_file()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_http, "PAUSE_S", 0.0)


@pytest.fixture
def http_store(tmp_path: Path) -> Iterator[HttpStore]:
    mine = BlobStore(tmp_path / "mine", durable=False)
    ref = mine.put_blob(DATA, chunk_bytes=CHUNK)
    with serve_objects(tmp_path / "http_store", KEY) as address:
        yield HttpStore(HmacUrlSigner(address, KEY), tmp_path / "http_store", mine, ref)


def ask(
    method: str, url: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send one plain HTTP request; underscores in header names stand for dashes."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"{parts.path}?{parts.query}", body=body, headers=named)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()
