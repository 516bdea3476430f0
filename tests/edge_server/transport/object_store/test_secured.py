"""The store over TLS and as a command, and its settings in a federation file."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.object_store import http as over_http
from edge_client.transport.object_store.http import HttpClient, TransferOutcome
from edge_server.cli.main import main
from edge_server.config.load import load_config
from edge_server.transport.object_store.http_service import serve_objects
from edge_server.transport.object_store.signed_urls import HmacUrlSigner, read_secret
from schemas.errors import ConfigError
from tests.edge_server.security.identity.conftest import new_authority
from tests.edge_server.transport.object_store.conftest import CHUNK, DATA, KEY, PLACE

NEVER = threading.Event()


def test_a_store_with_a_certificate_accepts_clients_that_trust_its_authority(tmp_path: Path) -> None:
    broker = new_authority(tmp_path / "authority").broker
    mine, theirs = BlobStore(tmp_path / "mine", durable=False), BlobStore(tmp_path / "theirs", durable=False)
    ref, pair = mine.put_blob(DATA, chunk_bytes=CHUNK), (broker / "broker.pem", broker / "broker.key")
    # The store listens on all addresses; its certificate contains the name localhost.
    with serve_objects(tmp_path / "shop", KEY, host="0.0.0.0", pair=pair) as address:
        links = HmacUrlSigner(address.replace("0.0.0.0", "localhost"), KEY)
        trusting, untrusting = HttpClient(ca=broker / "ca.pem", only_tls=True), HttpClient()
        url = links.url("PUT", PLACE, seconds=60, most=ref.size)
        assert over_http.put_blob(
            untrusting, url, ref, mine, resumable=True, stopped=NEVER
        ) == TransferOutcome(False)
        assert over_http.put_blob(trusting, url, ref, mine, resumable=True, stopped=NEVER).done
        url = links.url("GET", f"{PLACE}/{ref.digest}", seconds=60)
        assert over_http.fetch_blob(trusting, url, ref, theirs, NEVER).done
        assert theirs.verify(ref)


def test_the_command_serves_until_it_is_terminated(tmp_path: Path) -> None:
    words = ["object-store", str(tmp_path / "shop"), "--secret", str(tmp_path / "secret"), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "edge_server.cli.main", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        mine = BlobStore(tmp_path / "mine", durable=False)
        ref = mine.put_blob(DATA, chunk_bytes=CHUNK)
        links = HmacUrlSigner(address, read_secret(tmp_path / "secret"))
        url = links.url("PUT", f"home/{PLACE}", seconds=60, most=ref.size)
        assert over_http.put_blob(HttpClient(), url, ref, mine, resumable=True, stopped=NEVER).done
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_command_is_refused_on_a_network_without_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["object-store", str(tmp_path), "--secret", str(tmp_path / "secret"), "--host", "0.0.0.0"]
    assert main(words) == 2
    assert "--cert and --key" in capsys.readouterr().err
    assert main([*words, "--cert", str(tmp_path / "one.pem")]) == 2
    assert "belong together" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["object-store.store=ftp://store/"], "s3://bucket/prefix or embedded"),
        (["object-store.store=https://store:8900/"], "edge-server object-store --secret"),
        (["object-store.store=https://me:word@store/", "secret=s"], "no user, password or query"),
        (["object-store.store=http://store.lan/", "secret=s"], "use https"),
        (["object-store.endpoint=https://minio.lan"], "endpoint is for"),
        (["object-store.secret=s"], "name the store that secret"),
        (["object-store.stoer=embedded"], "store"),
        (["url-minutes=20000"], "10080"),
    ],
)
def test_an_invalid_store_is_refused_with_the_remedy(words: list[str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config("fedavg", words)


def test_the_settings_of_the_store_are_read() -> None:
    blobs = load_config("fedavg", ["object-store.store=s3://models/home", "threshold-mb=0.5"]).object_store
    assert (blobs.store, blobs.threshold_mb, blobs.url_minutes) == ("s3://models/home", 0.5, 60)
    assert load_config("fedavg").object_store.store is None
