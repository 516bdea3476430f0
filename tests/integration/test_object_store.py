"""A federation whose large blobs travel through the built-in object store, and through S3 (moto)."""

import logging
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import BrokerAddress
from edge_client.transport.object_store import http
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.publisher import open_object_store
from edge_server.storage.records import Summary
from schemas.errors import ConfigError
from schemas.messages import Update
from schemas.values import CapabilityProfile
from tests.integration.conftest import ONE_BROKER, Run
from tests.integration.device_threads import in_threads

NAMES = ("one", "two")
# An mlp of 64-200-200-10 has 55,210 parameters of 4 bytes: more than a message may contain.
MODEL_BYTES = 220_840


def config(store: str, **more: str) -> Config:
    """Every blob that is not part of a message goes through the store."""
    words = {
        "federation.name": "test",
        "data.source": "digits",
        "clients.num-clients": len(NAMES),
        "rounds": 1,
        "local-epochs": 1,
        "deliver": "none",
        "threshold-mb": 0,
        "object-store.store": store,
        # Uncompressed; compressed updates of this size would fit a message.
        "strategy.uplink": "[]",
        **more,
    }
    return load_config("fedavg", [f"{key}={value}" for key, value in words.items()])


def make_agent(name: str, address: BrokerAddress, state: Path) -> Agent:
    first = 40 * NAMES.index(name)
    train, held_out = holdout(load_source("digits").subset(range(first, first + 40)), seed=0)
    profile = CapabilityProfile(tier=1)
    settings = AgentSettings("test", name, address, state / name, "digits", profile, once=True, threads=1)
    return Agent(settings, LocalData(train, held_out))


def federate(settings: Config, address: BrokerAddress, folder: Path) -> Summary:
    """Two devices in threads of this process, and the server, to the run's end."""
    agents = [make_agent(name, address, folder) for name in NAMES]
    with (
        open_object_store(settings.object_store, folder / "object-store") as object_store,
        in_threads(agents) as ends,
    ):
        run = Run(settings, address, folder / "run", object_store=object_store)
        try:
            summary = run.finished()
            assert [end.result(timeout=30) for end in ends] == ["finished", "finished"]
        finally:
            run.stop()
    return summary


def check_paths(summary: Summary, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The round is complete, the broker transported almost nothing, no file or log contains an address."""
    assert (summary.outcome, [device.rounds for device in summary.devices]) == ("finished", [1, 1])
    assert summary.downlink_bytes + summary.uplink_bytes < MODEL_BYTES / 4
    with sqlite3.connect(folder / "run" / "journal.sqlite") as journal:
        updates = [row[0] for row in journal.execute("SELECT message FROM updates")]
        tasks = [row[0] for row in journal.execute("SELECT task FROM tasks")]
    assert len(updates) == 2
    assert all('"deposited":true' in update for update in updates)
    sizes = {update.device: update.blob.size for update in map(Update.model_validate_json, updates)}
    for device in summary.devices:
        # The device still transferred the model (float16) and its update, from and to the store.
        assert 0.5 < device.downlink_bytes / sizes[device.device] < 0.52
        assert 1.0 < device.uplink_bytes / sizes[device.device] < 1.02
    kept = [
        path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".safetensors"
    ]
    assert not any(b"ignature=" in content for content in kept)
    assert "ignature=" not in caplog.text + "".join(tasks)


def test_blobs_bypass_both_brokers(
    address: BrokerAddress, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    check_paths(federate(config("embedded"), address, tmp_path), tmp_path, caplog)
    objects = tmp_path / "object-store" / "objects"
    assert [path for path in objects.rglob("*") if path.is_file()] == []


@ONE_BROKER
def test_an_unreachable_store_stops_nothing(
    address: BrokerAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "PAUSE_S", 0.0)
    unreachable = config("http://127.0.0.1:9/", **{"object-store.secret": str(tmp_path / "secret")})
    summary = federate(unreachable, address, tmp_path)
    assert (summary.outcome, [device.rounds for device in summary.devices]) == ("finished", [1, 1])
    assert summary.uplink_bytes > 2 * MODEL_BYTES


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """An S3 server on loopback: its endpoint and a bucket."""
    pytest.importorskip("moto.server", reason="moto is not installed")
    pytest.importorskip("flask", reason="flask is not installed")
    import boto3
    from moto.server import ThreadedMotoServer

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint, name = f"http://{host}:{port}", f"models-{uuid.uuid4().hex[:8]}"
    try:
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
        yield endpoint, name
    finally:
        server.stop()


@ONE_BROKER
def test_blobs_travel_through_a_bucket(
    address: BrokerAddress, tmp_path: Path, caplog: pytest.LogCaptureFixture, bucket: tuple[str, str]
) -> None:
    import boto3

    caplog.set_level(logging.INFO)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    endpoint, name = bucket
    settings = config(f"s3://{name}/home", **{"object-store.endpoint": endpoint})
    check_paths(federate(settings, address, tmp_path), tmp_path, caplog)
    left = boto3.client("s3", endpoint_url=endpoint).list_objects_v2(Bucket=name)
    assert left["KeyCount"] == 0


def test_without_credentials_a_bucket_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("boto3", reason="boto3 is not installed")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    settings = config("s3://models/home", **{"object-store.endpoint": "http://127.0.0.1:9"})
    with pytest.raises(ConfigError, match="credentials"), open_object_store(settings.object_store, tmp_path):
        pass
