"""The server's signing key and its signatures."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from edge_client.security.task_verifier import check_task
from edge_client.security.trusted_key import check_model, read_trusted_key
from edge_server.rounds.device_messages import receive
from edge_server.rounds.events import Assignment, Command, Send
from edge_server.rounds.participant import Participant
from edge_server.rounds.participants import Participants
from edge_server.rounds.state import Federation, Phase, RoundRules
from edge_server.security.manifest_signer import ManifestSigner, open_manifest_signer
from edge_server.security.signing_key import load_or_make_signing_key, public_key_text
from schemas.base import fields_of
from schemas.errors import ConfigError
from schemas.messages import Acknowledgement, Delivery, Task, encode_message
from schemas.security.manifest import decode_manifest, spec_digest
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import digest_of
from tests.edge_client.signed import SERVER, TRUSTED
from tests.integration.bench import Bench
from tests.schemas.examples import plain_metrics


def test_a_key_is_created_once_and_private_to_its_owner(tmp_path: Path):
    path = tmp_path / "keys" / "signing.key"
    made = load_or_make_signing_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["signing.key"]
    assert load_or_make_signing_key(path).fingerprint == made.fingerprint
    assert load_or_make_signing_key(tmp_path / "other.key").fingerprint != made.fingerprint


def test_devices_trust_the_public_key(tmp_path: Path):
    (tmp_path / "signing.pub").write_text(public_key_text(tmp_path / "signing.key"))
    trusted = read_trusted_key(tmp_path / "signing.pub")
    assert trusted.fingerprint == load_or_make_signing_key(tmp_path / "signing.key").fingerprint
    assert "PRIVATE" not in (tmp_path / "signing.pub").read_text()


def test_a_key_that_others_may_read_is_refused(tmp_path: Path):
    load_or_make_signing_key(tmp_path / "signing.key")
    (tmp_path / "signing.key").chmod(0o640)
    with pytest.raises(ConfigError, match="others may read or write it: chmod 600"):
        load_or_make_signing_key(tmp_path / "signing.key")


def test_an_invalid_signing_key_is_refused_with_a_remedy(tmp_path: Path):
    pem, plain = (Encoding.PEM, PrivateFormat.PKCS8), NoEncryption()
    path = tmp_path / "signing.key"
    for content in (
        b"",
        b"no key",
        SERVER.public_text.encode(),
        SERVER.key.private_bytes(*pem, plain)[:70],
        SERVER.key.private_bytes(*pem, BestAvailableEncryption(b"secret")),
        X25519PrivateKey.generate().private_bytes(*pem, plain),
    ):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match="name another path"):
            load_or_make_signing_key(path)
        assert path.read_bytes() == content
    with pytest.raises(ConfigError, match=r"signing key .*: File exists"):
        load_or_make_signing_key(path / "signing.key")


def test_a_run_signs_with_the_given_key_or_its_own(tmp_path: Path):
    own = open_manifest_signer("home", "run-1", tmp_path / "run", None)
    assert own.signer is not None
    assert read_trusted_key(tmp_path / "run" / "signing.pub").fingerprint == own.signer.fingerprint
    again = open_manifest_signer("home", "run-1", tmp_path / "run", None)
    assert again.signer is not None
    assert again.signer.fingerprint == own.signer.fingerprint
    named = open_manifest_signer("home", "run-1", tmp_path / "next", tmp_path / "run" / "signing.key")
    assert named.signer is not None
    assert named.signer.fingerprint == own.signer.fingerprint
    assert not (tmp_path / "next" / "signing.key").exists()
    assert (tmp_path / "next" / "signing.pub").exists()


# --- a run ---
@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    manifest_signer = ManifestSigner("federation", "run-1", SERVER)
    return Bench(
        tmp_path_factory.mktemp("bench"), "attending", "model.name=two-nn", manifest_signer=manifest_signer
    )


def test_every_task_is_signed_for_its_device(bench: Bench):
    for name, task in bench.tasks(1, 1).items():
        received = task.model_copy(update={"deadline_s": 5.0})
        manifest = check_task(received, TRUSTED, federation="federation", device=name)
        assert (manifest.tier, manifest.ratio) == (task.tier, str(task.ratio))
        assert manifest.parent_sha256 == digest_of(version(bench, 0, "state.safetensors"))
        assert len(encode_message(task)) < 256 * 1024


def test_every_version_of_the_model_is_signed_by_its_manifest(bench: Bench):
    bench.round(1)
    for number in (0, 1):
        manifest = TRUSTED.check(decode_manifest(version(bench, number, "manifest.signed.json")))
        assert (manifest.what, manifest.round) == ("model", number)
        described = version(bench, number, "manifest.json")
        assert manifest.sha256 == digest_of(described)
        for name in ("state.safetensors", "channel-map.json"):
            assert digest_of(version(bench, number, name)).encode() in described


def version(bench: Bench, number: int, name: str) -> bytes:
    path = bench.folder.version(number) / name
    return path.read_bytes()


def test_the_signed_manifest_of_an_onnx_file_contains_its_provenance(tmp_path: Path):
    (tmp_path / "tier-2.onnx").write_bytes(b"the model of tier 2")
    provenance = {"round": "7", "tier": "2", "prune_ratio": "0.5", "parent_sha256": "0" * 64}
    spec = SubModelSpec(kept={"conv2": 3})
    ManifestSigner("home", "run-1", SERVER).export(tmp_path / "tier-2.onnx", provenance, spec)
    manifest = check_model(tmp_path / "tier-2.onnx", b"the model of tier 2", TRUSTED, exported_by="server")
    assert (manifest.what, manifest.federation, manifest.run) == ("tier-export", "home", "run-1")
    assert (manifest.round, manifest.tier, manifest.ratio) == (7, 2, "0.5")
    assert (manifest.spec_sha256, manifest.parent_sha256) == (spec_digest(spec), "0" * 64)


def delivered(task: Task, device: str) -> Delivery:
    """A device's report that it has exported its model."""
    about = fields_of(task, "federation", "run", "round", "attempt")
    return Delivery(**about, device=device, metrics=plain_metrics())


def test_a_delivery_of_the_devices_own_task_is_countersigned(bench: Bench):
    task = bench.tasks(2, 9, deliver=True)["weak"]
    delivery = delivered(task, "weak")
    participant = Participant("weak", Assignment(task, 1000), 60.0)
    federation = Federation(
        "federation", "run-1", RoundRules(2), Phase.DELIVERING, participants=Participants.of([participant])
    )
    after, commands = receive(federation, delivery, 0.0)
    answer = answer_in(commands)
    sent = bench.coordinator.signer.sign_message(answer.message, answer.to_sign)
    assert isinstance(sent, Acknowledgement)
    assert sent.manifest is not None
    manifest = TRUSTED.check(sent.manifest)
    assert task.manifest is not None
    assert manifest == task.manifest.manifest.model_copy(
        update={"what": "device-export", "sha256": delivery.metrics.onnx_sha256}
    )
    assert len(encode_message(sent)) < 2048
    # A repeated delivery is signed again; another device's or an unrequested delivery is not.
    assert answer_in(receive(after, delivery, 1.0)[1]) == answer
    for changes in ({"device": "strong"}, {"attempt": 8}, {"run": "run-2"}):
        other = Delivery.model_validate({**delivery.model_dump(), **changes})
        assert answer_in(receive(federation, other, 0.0)[1]).to_sign is None


def answer_in(commands: list[Command]) -> Send:
    (answer,) = [command for command in commands if isinstance(command, Send)]
    return answer


def test_a_delivery_for_a_training_task_is_not_signed(bench: Bench):
    task = bench.tasks(2, 8)["weak"]
    delivery = delivered(task, "weak")
    federation = Federation(
        "federation",
        "run-1",
        RoundRules(2),
        Phase.TRAINING,
        participants=Participants.of([Participant("weak", Assignment(task, 1000), 60.0)]),
    )
    assert answer_in(receive(federation, delivery, 0.0)[1]).to_sign is None


def test_without_a_key_tasks_are_not_signed(tmp_path: Path):
    unsigned = Bench(tmp_path, "attending", "model.name=two-nn")
    assert all(task.manifest is None for task in unsigned.tasks(1, 1).values())
    assert not [path for path in unsigned.folder.path.rglob("*") if "sign" in path.name]
