"""After any crash, the model in use is one file with its own manifest."""

from contextlib import suppress
from pathlib import Path

import pytest

from edge_client.agent.assembly import SignaturePolicy
from edge_client.inference import installed_model
from edge_client.inference.model_slots import ServedModel
from edge_client.security.trusted_key import check_model
from edge_client.storage.atomic_files import sweep
from schemas.errors import ConfigError, EdgeError, PeerError, Reason
from schemas.messages import Acknowledgement
from schemas.security.manifest import SignedManifest, encode_manifest, manifest_path
from schemas.tensors.chunks import digest_of
from tests.edge_client.inference.test_model_slots import PowerCut, failing_power, without_links
from tests.edge_client.signed import SERVER, STRANGER, TRUSTED, manifest_of

OLD, NEW = b"the model of run one", b"the model of run two"


def signed_manifest(data: bytes, **more: str) -> SignedManifest:
    return SERVER.sign(manifest_of(data, **{"what": "device-export", "device": "pi", **more}))


def export(models: Path, data: bytes) -> None:
    installed_model.begin(models).write_bytes(data)
    installed_model.note(models, ServedModel(version="run-1 round 3", digest=digest_of(data)))


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "models"


def deliver(models: Path, data: bytes) -> None:
    export(models, data)
    assert installed_model.take_signature(models, signed_manifest(data))


def serves(models: Path) -> bytes:
    """The served model, which the key must have signed."""
    data = installed_model.served_model_path(models).read_bytes()
    check_model(installed_model.served_model_path(models), data, TRUSTED)
    return data


def test_a_waiting_model_is_served_once_the_server_has_signed_it(models: Path):
    deliver(models, OLD)
    export(models, NEW)
    assert serves(models) == OLD
    assert installed_model.take_signature(models, signed_manifest(NEW))
    assert serves(models) == NEW
    assert list(installed_model.waiting(models).parent.iterdir()) == []


def test_a_manifest_of_another_model_changes_nothing(models: Path):
    assert not installed_model.take_signature(models, signed_manifest(NEW))
    deliver(models, OLD)
    assert not installed_model.take_signature(models, signed_manifest(NEW))
    assert serves(models) == OLD


def test_a_repeated_manifest_changes_nothing(models: Path):
    deliver(models, OLD)
    assert installed_model.take_signature(models, signed_manifest(OLD))
    assert serves(models) == OLD


# --- power cuts ---
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_after_any_power_cut_the_file_is_a_complete_model_and_the_served_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signed: bool, linked: bool
):
    def put_in_use(models: Path) -> None:
        if signed:
            installed_model.take_signature(models, signed_manifest(NEW))
        else:
            installed_model.put_in_use(models)

    if not linked:
        without_links(monkeypatch)
    cut_at, seen = 0, []
    while True:
        models = tmp_path / f"cut-{cut_at}" / "models"
        deliver(models, OLD)
        export(models, NEW)
        with failing_power(models.parent, monkeypatch, cut_at) as steps, suppress(PowerCut):
            put_in_use(models)
        if len(steps) <= cut_at:
            break
        if linked:
            assert installed_model.served_model_path(models).read_bytes() in (OLD, NEW), steps
        sweep(models.parent)
        installed_model.repair(models)
        seen.append(in_slot(models))
        assert installed_model.served_model_path(models).read_bytes() == seen[-1], steps
        if signed:
            serves(models)
        # Repeating the step, or the server sending the manifest again, completes it.
        if seen[-1] != NEW:
            put_in_use(models)
        assert (installed_model.served_model_path(models).read_bytes(), in_slot(models)) == (NEW, NEW), steps
        assert installed_model.slots(models).back().read() == OLD, steps
        assert installed_model.served_model_path(models).read_bytes() == OLD, steps
        cut_at += 1
    assert (seen[0], seen[-1]) == (OLD, NEW)


@pytest.mark.parametrize("content", [b"", b"no manifest", b"{}"])
def test_an_invalid_waiting_manifest_is_removed(models: Path, content: bytes):
    deliver(models, OLD)
    export(models, NEW)
    manifest_path(installed_model.waiting(models)).write_bytes(content)
    installed_model.repair(models)
    assert serves(models) == OLD
    assert not manifest_path(installed_model.waiting(models)).exists()


def test_an_unsigned_model_is_never_stored_with_the_manifest_of_the_previous_one(models: Path):
    deliver(models, OLD)
    export(models, NEW)
    installed_model.put_in_use(models)
    assert installed_model.served_model_path(models).read_bytes() == NEW
    with pytest.raises(ConfigError, match="no signed manifest"):
        serves(models)
    assert installed_model.take_signature(models, signed_manifest(NEW))
    assert serves(models) == NEW


# --- one file ---
def in_slot(models: Path) -> bytes | None:
    current = installed_model.slots(models).current()
    return None if current is None else current.read()


def test_the_file_in_models_is_the_same_file_as_in_the_slot(models: Path):
    for data in (OLD, NEW):
        export(models, data)
        installed_model.put_in_use(models)
        current = installed_model.slots(models).current()
        assert installed_model.served_model_path(models).samefile(current.path)
        assert (models / "model.json").samefile(current.folder / "model.json")
        assert (current.read(), current.model.version) == (data, "run-1 round 3")
    installed_model.slots(models).back()
    assert installed_model.served_model_path(models).read_bytes() == OLD
    assert installed_model.slots(models).folder == models.parent / "serving"


def test_links_stay_valid_when_the_state_folder_is_moved(models: Path, tmp_path: Path):
    deliver(models, OLD)
    models.parent.rename(tmp_path.parent / f"{tmp_path.name}-moved")
    assert serves(tmp_path.parent / f"{tmp_path.name}-moved" / "models") == OLD


def test_without_links_the_file_is_a_copy_that_is_updated_on_every_switch(
    models: Path, monkeypatch: pytest.MonkeyPatch
):
    without_links(monkeypatch)
    for data in (OLD, NEW):
        deliver(models, data)
        assert serves(models) == in_slot(models) == data
        assert not installed_model.served_model_path(models).is_symlink()
    installed_model.slots(models).back()
    assert serves(models) == OLD
    # An unsigned model leaves no manifest behind.
    export(models, NEW)
    installed_model.put_in_use(models)
    assert installed_model.served_model_path(models).read_bytes() == NEW
    assert not manifest_path(installed_model.served_model_path(models)).exists()


def test_copies_become_links_where_links_are_possible_again(models: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        without_links(patched)
        deliver(models, OLD)
    installed_model.repair(models)
    assert installed_model.served_model_path(models).is_symlink()
    assert serves(models) == OLD


def test_a_file_in_place_of_the_link_is_replaced_by_the_slot_in_use(models: Path):
    deliver(models, NEW)
    for name in ("model.onnx", "model.json", "model.onnx.manifest.json"):
        (models / name).unlink()
    installed_model.served_model_path(models).write_bytes(OLD)
    installed_model.repair(models)
    assert serves(models) == NEW


@pytest.mark.parametrize("what", ["damaged", "of another model"])
def test_a_mismatched_note_leaves_the_previous_model_in_use(models: Path, what: str):
    deliver(models, OLD)
    export(models, NEW)
    if what == "damaged":
        installed_model.waiting(models).with_name("model.json").write_bytes(b"{")
    else:
        installed_model.note(models, ServedModel(version="run-1 round 3", digest=digest_of(OLD + NEW)))
    with pytest.raises(EdgeError):
        installed_model.put_in_use(models)
    assert serves(models) == in_slot(models) == OLD


def test_a_signed_model_that_cannot_be_written_waits_for_the_next_start(
    models: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    deliver(models, OLD)
    export(models, NEW)
    with monkeypatch.context() as patched:
        patched.setattr("edge_client.inference.model_slots.write_synced", full)
        installed_model.take_signature(models, signed_manifest(NEW))
    assert serves(models) == OLD
    assert "the new model is not served" in caplog.text
    installed_model.repair(models)
    assert serves(models) == NEW


# --- manifests from the server ---
def acknowledged(signed: SignedManifest) -> Acknowledgement:
    return Acknowledgement(federation="home", device="pi", run="run-1", attempt=1, manifest=signed)


def test_a_device_with_a_key_accepts_only_the_servers_manifest(tmp_path: Path):
    device = SignaturePolicy("home", "pi", tmp_path, TRUSTED)
    models = tmp_path / "models"
    export(models, NEW)
    for strange in (
        STRANGER.sign(signed_manifest(NEW).manifest),
        signed_manifest(NEW, device="other"),
        signed_manifest(NEW, federation="work"),
        signed_manifest(NEW, what="task"),
    ):
        with pytest.raises(PeerError) as caught:
            device.check(acknowledged(strange))
        assert caught.value.reason == Reason.UNTRUSTED
        assert not installed_model.served_model_path(models).exists()
    device.check(acknowledged(signed_manifest(NEW)))
    assert serves(models) == NEW


def test_a_device_without_a_key_keeps_the_manifest(tmp_path: Path):
    device = SignaturePolicy("home", "pi", tmp_path, None)
    export(tmp_path / "models", NEW)
    installed_model.put_in_use(tmp_path / "models")
    device.check(acknowledged(signed_manifest(NEW)))
    assert serves(tmp_path / "models") == NEW


def test_an_interrupted_switch_is_completed_when_the_device_starts(tmp_path: Path):
    models = tmp_path / "models"
    deliver(models, OLD)
    export(models, NEW)
    manifest_path(installed_model.waiting(models)).write_bytes(encode_manifest(signed_manifest(NEW)))
    SignaturePolicy("home", "pi", tmp_path, TRUSTED)
    assert serves(models) == NEW
