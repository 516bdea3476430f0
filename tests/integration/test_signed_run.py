"""A federation with a signing server, and devices that require its key, no key, or another key."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_client.inference.model_slots import Slots
from edge_client.inference.onnx_model import load_model
from edge_client.security.trusted_key import read_trusted_key
from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.launch import serve
from edge_server.releases.registry.registry import Registry
from edge_server.security.signing_key import load_or_make_signing_key
from edge_server.storage.records import Summary
from edge_server.transport.broker.launch import running_broker
from schemas.errors import ConfigError
from tests.forked import start_forked
from tests.integration.conftest import Watched, demo_config
from tests.once import made_once

DEVICES = {"careful": "server", "easy-going": None, "misled": "stranger"}
"""The key that each device trusts."""


@dataclass(frozen=True)
class Ended:
    """The files and the summary of a run."""

    folder: Path
    devices: Path
    key: Path
    summary: Summary


@contextlib.contextmanager
def started(url: str, folder: Path, keys: dict[str, Path]) -> Iterator[None]:
    processes = []
    try:
        for share, (name, trusts) in enumerate(DEVICES.items(), start=1):
            (folder / name).mkdir(parents=True)
            words = ["--broker", url, "--federation", "test", "--device-id", name, "--data", "digits"]
            words += ["--share", f"{share}/3", "--tier", str(min(share, 2)), "--threads", "1", "--once"]
            words += ["--state-dir", str(folder / name), *(["--trust", str(keys[trusts])] if trusts else [])]
            log = folder / name / "client.log"
            processes.append(start_forked("edge-client", "run", *words, log=log))
        yield
        assert [process.wait(timeout=30) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.kill()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """A run of one round and a delivery."""
    folder = made_once(tmp_path_factory, "signed-run", _run)
    summary = Summary.model_validate_json((folder / "run" / "summary.json").read_text())
    return Ended(folder / "run", folder / "devices", folder / "server.pub", summary)


def _run(folder: Path) -> None:
    keys = {}
    for name in ("server", "stranger"):
        keys[name] = folder / f"{name}.pub"
        keys[name].write_text(load_or_make_signing_key(folder / f"{name}.key").public_text)
    config = demo_config(
        **{
            "clients.num-clients": 3,
            "tiers.ratios": "[0.7, 0.0]",
            "rounds": 1,
            "federation.signing-key": folder / "server.key",
        }
    )
    with (
        running_broker("embedded", folder / "broker") as broker,
        started(broker.url, folder / "devices", keys),
    ):
        serve(config, parse_address(broker.url), Watched(), out=folder / "run")


def test_the_run_continues_without_the_device_that_trusts_another_key(ended: Ended):
    assert ended.summary.outcome == "finished"
    lines = [json.loads(line) for line in (ended.folder / "history.jsonl").read_text().splitlines()]
    for line in lines:
        assert set(line["completed"]) == {"careful", "easy-going"}
        assert line["dropped"] == ["misled"]
    assert "ignored (untrusted): signed with key" in (ended.devices / "misled" / "client.log").read_text()
    assert not (ended.devices / "misled" / "models" / "model.onnx").exists()


def log_of(ended: Ended, name: str) -> str:
    return (ended.devices / name / "client.log").read_text()


def test_exports_of_the_server_and_of_the_devices_are_signed(ended: Ended):
    key = read_trusted_key(ended.key)
    for tier in (1, 2):
        path = ended.folder / "onnx" / f"tier-{tier}.onnx"
        signed = load_model(path, trust=key, exported_by="server").signed
        assert signed is not None
        assert (signed.tier, signed.run, signed.round) == (tier, ended.summary.run, 1)
    for tier, name in ((1, "careful"), (2, "easy-going")):
        path = ended.devices / name / "models" / "model.onnx"
        model = load_model(path, trust=key, exported_by=name)
        assert model.signed is not None
        assert (model.signed.what, model.signed.tier) == ("device-export", tier)
        assert model.signed.parent_sha256 == model.provenance["parent_sha256"]
        assert sorted(entry.name for entry in path.parent.iterdir() if entry.is_file()) == [
            "model.json",
            "model.onnx",
            "model.onnx.manifest.json",
        ]
        # A slot contains the same bytes; the device chose their variant by measuring.
        current = Slots(ended.devices / name / "serving").current()
        assert current is not None
        assert load_model(current.path, trust=key, exported_by=name).signed == model.signed
        assert current.model.variant == model.provenance.get("variant", "fp32")
        assert f"{current.model.variant} is kept: fastest at" in log_of(ended, name)


def test_the_summary_has_the_variant_of_each_device_and_the_reason(ended: Ended):
    reported = {device.device: device for device in ended.summary.devices}
    for name in ("careful", "easy-going"):
        current = Slots(ended.devices / name / "serving").current()
        assert current is not None
        assert (reported[name].variant, reported[name].why) == (current.model.variant, current.model.why)
        assert reported[name].variant_accuracy == current.model.accuracy
    assert reported["misled"].variant is None


def test_the_run_folder_contains_the_public_key_but_not_the_private_key(ended: Ended):
    assert (ended.folder / "signing.pub").read_text() == ended.key.read_text()
    files = [path for path in ended.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes()]


def test_the_models_of_the_run_are_entered_in_the_registry_next_to_its_folder(ended: Ended):
    (version,) = Registry(ended.folder.parent / "registry").versions()
    assert (version.version, version.run, version.round) == (ended.folder.name, ended.summary.run, 1)
    assert version.key == read_trusted_key(ended.key).fingerprint
    assert [(tier.tier, tier.devices) for tier in version.tiers] == [(1, 1), (2, 1)]
    served = json.loads((ended.devices / "careful" / "serving" / "current.json").read_text())
    assert served["slot"] == "a"


def test_a_model_that_is_altered_afterwards_is_refused(ended: Ended, tmp_path: Path):
    served = ended.devices / "careful" / "models" / "model.onnx"
    for name in ("model.onnx", "model.onnx.manifest.json"):
        (tmp_path / name).write_bytes(served.with_name(name).read_bytes())
    key = read_trusted_key(ended.key)
    load_model(tmp_path / "model.onnx", trust=key)
    other = ended.devices / "easy-going" / "models" / "model.onnx"
    (tmp_path / "model.onnx").write_bytes(other.read_bytes())
    with pytest.raises(ConfigError, match="is not trusted: its sha256 is"):
        load_model(tmp_path / "model.onnx", trust=key)
