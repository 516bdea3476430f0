"""A store of our own on loopback, and a blob to send."""

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
from schemas.tensors.blobs import BlobRef

KEY = b"k" * 32
CHUNK = 1024
DATA = random.Random(0).randbytes(200 * CHUNK + 10)
PLACE = "updates/run-1/1/pi"


@dataclass
class Shop:
    """The store, who signs for it, and a device's own blobs."""

    links: HmacUrlSigner
    folder: Path
    mine: BlobStore
    ref: BlobRef

    def put(self, url: str, ref: BlobRef | None = None) -> TransferOutcome:
        """Put a blob of the device there."""
        never = threading.Event()
        return over_http.put(HttpClient(), url, ref or self.ref, self.mine, resumable=True, stopped=never)

    def blob(self) -> str:
        """The name of the blob, as the server gives it out."""
        return f"blobs/{self.ref.digest}"

    def holds(self, name: str) -> bool:
        """Whether the store has an object of that name."""
        return (self.folder / "objects" / name).is_file()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(over_http, "PAUSE_S", 0.0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    mine = BlobStore(tmp_path / "mine", durable=False)
    ref = mine.put(DATA, chunk_bytes=CHUNK)
    with serve_objects(tmp_path / "shop", KEY) as address:
        yield Shop(HmacUrlSigner(address, KEY), tmp_path / "shop", mine, ref)


def ask(
    method: str, url: str, body: bytes | None = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request as anyone could make it; underscores in headers stand for dashes."""
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
