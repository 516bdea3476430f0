"""A model and the server's word for it: always a fitting pair, wherever a crash falls."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_client import placement
from edge_client.signed_only import SignedOnly
from edge_client.slots import ServedModel
from edge_client.trust import check_model
from schemas.blobs import digest_of
from schemas.errors import ConfigError, PeerError
from schemas.manifest import SignedManifest, manifest_path
from schemas.messages import Acknowledgement
from schemas.values import Reason
from tests.client.signed import SERVER, STRANGER, TRUSTED, manifest_of

OLD, NEW = b"the model of run one", b"the model of run two"


def word(data: bytes, **more: str) -> SignedManifest:
    return SERVER.sign(manifest_of(data, **{"what": "device-export", "device": "pi", **more}))


def export(models: Path, data: bytes) -> None:
    placement.begin(models).write_bytes(data)


def deliver(models: Path, data: bytes) -> None:
    export(models, data)
    assert placement.take_word(models, word(data))


def serves(models: Path) -> bytes:
    """The model in its place, which must be one that the key vouches for."""
    data = placement.served(models).read_bytes()
    check_model(placement.served(models), data, TRUSTED)
    return data


def test_a_waiting_model_is_served_once_the_server_has_signed(tmp_path: Path):
    deliver(tmp_path, OLD)
    export(tmp_path, NEW)
    assert serves(tmp_path) == OLD
    assert placement.take_word(tmp_path, word(NEW))
    assert serves(tmp_path) == NEW
    assert list(placement.waiting(tmp_path).parent.iterdir()) == []


def test_a_word_for_a_model_that_is_not_here_changes_nothing(tmp_path: Path):
    assert not placement.take_word(tmp_path, word(NEW))
    deliver(tmp_path, OLD)
    assert not placement.take_word(tmp_path, word(NEW))
    assert serves(tmp_path) == OLD


def test_a_word_that_comes_twice_changes_nothing(tmp_path: Path):
    deliver(tmp_path, OLD)
    assert placement.take_word(tmp_path, word(OLD))
    assert serves(tmp_path) == OLD


class PowerCut(Exception):
    """The process ends here."""


@pytest.mark.parametrize("steps", range(4))
def test_after_a_crash_at_any_step_a_restart_serves_a_signed_model(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
):
    """The renames on the way: the manifest is written (1), the model moves (2), its manifest follows (3)."""
    deliver(tmp_path, OLD)
    export(tmp_path, NEW)
    renamed, done = Path.replace, []

    def replace(path: Path, target: Path) -> Path:
        if len(done) == steps:
            raise PowerCut
        done.append(target)
        return renamed(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        if steps < 3:
            with pytest.raises(PowerCut):
                placement.take_word(tmp_path, word(NEW))
        else:
            placement.take_word(tmp_path, word(NEW))
    assert len(done) == steps
    placement.repair(tmp_path)
    assert serves(tmp_path) == (OLD if steps == 0 else NEW)
    # The server says it again, should it not have been heard.
    placement.take_word(tmp_path, word(NEW))
    assert serves(tmp_path) == NEW


@pytest.mark.parametrize("content", [b"", b"no manifest", b"{}"])
def test_a_waiting_manifest_that_is_none_is_thrown_away(tmp_path: Path, content: bytes):
    deliver(tmp_path, OLD)
    export(tmp_path, NEW)
    manifest_path(placement.waiting(tmp_path)).write_bytes(content)
    placement.repair(tmp_path)
    assert serves(tmp_path) == OLD
    assert not manifest_path(placement.waiting(tmp_path)).exists()


def test_an_unsigned_model_never_lies_beside_the_manifest_of_the_last_one(tmp_path: Path):
    deliver(tmp_path, OLD)
    export(tmp_path, NEW)
    placement.serve_unsigned(tmp_path)
    assert placement.served(tmp_path).read_bytes() == NEW
    with pytest.raises(ConfigError, match="no signed manifest"):
        serves(tmp_path)
    assert placement.take_word(tmp_path, word(NEW))
    assert serves(tmp_path) == NEW


# --- the slots ---
def noted(models: Path, data: bytes) -> None:
    export(models, data)
    placement.note(models, ServedModel(version="run-1 round 3", digest=digest_of(data)))


def in_slot(models: Path) -> bytes | None:
    current = placement.slots(models).current()
    return None if current is None else current.read()


def test_an_unsigned_model_is_served_from_a_slot_at_once(tmp_path: Path):
    models = tmp_path / "models"
    for data in (OLD, NEW):
        noted(models, data)
        placement.serve_unsigned(models)
        assert in_slot(models) == data
    assert placement.slots(models).back().read() == OLD
    assert placement.slots(models).folder == tmp_path / "serving"


def test_a_signed_model_is_served_from_a_slot_with_its_manifest_once_the_server_has_signed(tmp_path: Path):
    models = tmp_path / "models"
    noted(models, NEW)
    assert in_slot(models) is None
    assert placement.take_word(models, word(NEW))
    assert in_slot(models) == NEW
    check_model(placement.slots(models).current().path, NEW, TRUSTED)
    # Told again, or told what nobody has: nothing changes.
    placement.take_word(models, word(NEW))
    placement.take_word(models, word(OLD))
    assert in_slot(models) == NEW


def test_a_word_that_comes_late_lies_beside_the_model_in_its_slot(tmp_path: Path):
    models = tmp_path / "models"
    noted(models, NEW)
    placement.serve_unsigned(models)
    with pytest.raises(ConfigError, match="no signed manifest"):
        check_model(placement.slots(models).current().path, NEW, TRUSTED)
    placement.take_word(models, word(NEW))
    check_model(placement.slots(models).current().path, NEW, TRUSTED)


@pytest.mark.parametrize("what", ["damaged", "of another model"])
def test_a_note_that_does_not_fit_costs_the_slot_alone(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
):
    models = tmp_path / "models"
    noted(models, OLD)
    placement.serve_unsigned(models)
    export(models, NEW)
    if what == "damaged":
        (models / "model.json").write_bytes(b"{")
    placement.serve_unsigned(models)
    assert placement.served(models).read_bytes() == NEW
    assert in_slot(models) == OLD
    assert "the new model is not served" in caplog.text


# --- the server's word as it comes ---
def acknowledged(signed: SignedManifest) -> Acknowledgement:
    return Acknowledgement(federation="home", device="pi", run="run-1", attempt=1, manifest=signed)


def test_a_device_with_a_key_takes_the_servers_word_and_nobody_elses(tmp_path: Path):
    device = SignedOnly("home", "pi", tmp_path, TRUSTED)
    models = tmp_path / "models"
    export(models, NEW)
    for strange in (
        STRANGER.sign(word(NEW).manifest),
        word(NEW, device="other"),
        word(NEW, federation="work"),
        word(NEW, what="task"),
    ):
        with pytest.raises(PeerError) as caught:
            device.check(acknowledged(strange))
        assert caught.value.reason == Reason.UNTRUSTED
        assert not placement.served(models).exists()
    device.check(acknowledged(word(NEW)))
    assert serves(models) == NEW


def test_a_device_without_a_key_keeps_the_word_for_whoever_has_one(tmp_path: Path):
    device = SignedOnly("home", "pi", tmp_path, None)
    export(tmp_path / "models", NEW)
    placement.serve_unsigned(tmp_path / "models")
    device.check(acknowledged(word(NEW)))
    assert serves(tmp_path / "models") == NEW


def test_what_was_cut_off_is_finished_when_the_device_starts(tmp_path: Path):
    models = tmp_path / "models"
    deliver(models, NEW)
    manifest_path(placement.served(models)).rename(manifest_path(placement.waiting(models)))
    SignedOnly("home", "pi", tmp_path, TRUSTED)
    assert serves(models) == NEW
