"""The run folder: every file is always complete, and files of an earlier run are never overwritten."""

import contextlib
import fcntl
import json
import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from edge_client.storage.file_recycling import Spares
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.storage.records import DeviceRecord, Rejected, RoundRecord, Summary
from edge_server.storage.run_folder import KEPT_VERSIONS, RunFolder
from edge_server.strategy.closing import load_checkpoint
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.tensors.chunks import digest_of
from tests.edge_server.observability.terminal import shown
from tests.edge_server.strategy.network import MAP, arrays
from tests.groups import read_groups


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "runs" / "one", Config())


def record(number: int, **more) -> RoundRecord:
    fields = {
        "selected": ("a", "b"),
        "completed": ("a",),
        "rejected": (Rejected(device="b", reason="not-finite"),),
        "tier_accuracy": {1: 0.25, 5: 0.75},
    }
    return shown.record(number, **{**fields, **more})


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir())


def test_a_new_folder_has_the_resolved_file_and_an_empty_history(folder):
    assert names(folder.path) == ["blobs", "federation.toml", "history.jsonl", "models", "onnx"]
    assert load_config(str(folder.path / "federation.toml")) == Config().with_codecs()
    assert (folder.path / "history.jsonl").read_text() == ""


def test_the_paths_are_those_of_the_design(folder):
    assert folder.blobs == folder.path / "blobs"
    assert folder.journal == folder.path / "journal.sqlite"
    assert folder.onnx(3) == folder.path / "onnx" / "tier-3.onnx"


def test_an_earlier_run_is_not_overwritten(folder):
    folder.add_round(record(1))
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=rf"holds an earlier run: .*--out.*from={folder.path} "):
        RunFolder.create(folder.path, load_config("fedavg"))
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_an_existing_folder_without_a_run_is_accepted(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path, Config())
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_a_config_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match=r"--out .*Permission denied"):
        RunFolder.create(tmp_path / "run", Config())


def test_a_file_in_place_of_the_folder_is_a_config_error(tmp_path):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(ConfigError, match=f"--out {tmp_path / 'run'}: "):
        RunFolder.create(tmp_path / "run", Config())


def test_the_history_has_a_line_per_round(folder):
    for number in (1, 2):
        folder.add_round(record(number))
    lines = (folder.path / "history.jsonl").read_text().splitlines()
    assert [RoundRecord.model_validate_json(line) for line in lines] == [record(1), record(2)]
    first = json.loads(lines[0])
    assert first["rejected"] == [{"device": "b", "reason": "not-finite", "detail": ""}]
    # JSON keys cannot be integers.
    assert first["tier_accuracy"] == {"1": 0.25, "5": 0.75}


def test_a_line_of_history_has_every_key_that_tools_rely_on(folder):
    folder.add_round(record(1))
    # DESIGN.md, section 7.
    keys = (
        "round fraction local_epochs selected completed dropped rejected uplink_bytes downlink_bytes"
        " duration_s train_loss test_loss test_accuracy tier_accuracy attention weights"
    )
    assert set(keys.split()) <= json.loads((folder.path / "history.jsonl").read_text()).keys()


def test_the_summary_is_written_completely_and_may_be_replaced(folder):
    devices = (DeviceRecord(device="a", tier=1, ratio=0.5),)
    summary = shown.summary(devices=devices, onnx={1: "onnx/tier-1.onnx"})
    folder.write_summary(summary.model_copy(update={"outcome": "failed"}))
    folder.write_summary(summary)
    text = (folder.path / "summary.json").read_text()
    assert text.endswith("}\n")
    assert Summary.model_validate_json(text) == summary
    assert not [name for name in names(folder.path) if name.endswith(".part")]


def test_a_model_is_stored_with_its_channel_map_and_manifest(folder):
    digest = folder.save_model(7, arrays(1), MAP, {"run": "run-1"})
    version = folder.path / "models" / "round-0007"
    assert names(version) == ["channel-map.json", "manifest.json", "state.safetensors"]
    state = version / "state.safetensors"
    assert digest == digest_of(state.read_bytes())
    kept = read_groups(state)["model"]
    assert kept.keys() == MAP.parameters.keys()
    assert all((kept[name] == array).all() for name, array in arrays(1).items())
    assert ChannelMap.model_validate_json((version / "channel-map.json").read_bytes()) == MAP
    manifest = json.loads((version / "manifest.json").read_text())
    channels = digest_of((version / "channel-map.json").read_bytes())
    assert manifest == {"round": 7, "state_sha256": digest, "channel_map_sha256": channels, "run": "run-1"}


def test_the_last_versions_are_kept_and_older_ones_are_deleted(folder):
    for number in range(12):
        folder.save_model(number, arrays(number), MAP, {})
    assert KEPT_VERSIONS == 3
    assert names(folder.path / "models") == ["round-0009", "round-0010", "round-0011"]


def test_a_version_written_again_is_replaced(folder):
    digests = [folder.save_model(1, arrays(seed), MAP, {}) for seed in (0, 1)]
    assert digests[0] != digests[1]
    manifest = json.loads((folder.path / "models" / "round-0001" / "manifest.json").read_text())
    assert manifest["state_sha256"] == digests[1]


def test_equal_models_have_equal_digests(folder):
    turned = {name: np.asfortranarray(array) for name, array in reversed(arrays(1).items())}
    assert folder.save_model(1, arrays(1), MAP, {}) == folder.save_model(2, turned, MAP, {"other": 1})


def test_the_newest_version_is_kept_in_very_long_runs_too(folder):
    for number in (9998, 9999, 10_000, 10_001, 10_002):
        folder.save_model(number, arrays(0), MAP, {})
    assert names(folder.path / "models") == ["round-10000", "round-10001", "round-10002"]


# --- the strategy's state ---
def closed(folder: RunFolder, number: int) -> str:
    """Write the files of a closed round; return the model's digest."""
    digest = folder.save_model(number, arrays(number), MAP, {}, durable=False)
    folder.save_checkpoint(State(params=arrays(number), round=number, observed={"it": number}), durable=False)
    return digest


def test_a_state_is_loaded_with_its_model(folder):
    for number in range(3):
        digest = closed(folder, number)
    back = folder.load_state(2, digest)
    assert (back.round, back.observed) == (2, {"it": 2})
    assert all((back.params[name] == array).all() for name, array in arrays(2).items())


def test_a_state_with_a_different_model_is_refused(folder):
    digest = closed(folder, 1)
    folder.save_model(1, arrays(9), MAP, {})
    with pytest.raises(
        ConfigError, match=r"round-0001/state.safetensors is not the model that round 1 ended"
    ):
        folder.load_state(1, digest)


@pytest.mark.parametrize("left", [None, b"", b"no tensors"], ids=str)
def test_a_state_whose_model_cannot_be_read_is_refused(folder, left):
    closed(folder, 1)
    folder.model(1).unlink()
    if left is not None:
        folder.model(1).write_bytes(left)
    with pytest.raises(ConfigError, match="its model cannot be read"):
        folder.load_state(1)


# --- overwriting unused files ---
@pytest.fixture
def spares(folder) -> Spares:
    spares = Spares(folder.blobs)
    folder.write_over(spares)
    return spares


def test_a_checkpoint_overwrites_a_deleted_one(folder, spares):
    def save(number: int) -> None:
        folder.save_checkpoint(State(params={}, round=number, weighting=arrays(number)), durable=False)

    for number in range(3):
        save(number)
    old = {path.stat().st_ino for path in folder.blobs.iterdir()}
    spares.turn()
    save(3)
    assert {folder.checkpoint(3).stat().st_ino} == old
    assert names(folder.checkpoint(3).parent) == [folder.checkpoint(n).name for n in (2, 3)]
    for number in (2, 3):
        again = load_checkpoint(folder.checkpoint(number), {}).weighting
        assert all((again[name] == array).all() for name, array in arrays(number).items())


def leases(folder: Path) -> bool:
    """Return whether the file system supports leases, which show that no one else has a file open."""
    probe = folder / "probe"
    probe.write_bytes(b"")
    with probe.open("rb") as file, contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return True
    return False


def test_a_model_overwrites_a_deleted_one(folder, spares, tmp_path):
    if not leases(tmp_path):
        pytest.skip("this file system does not support leases")
    states = [folder.version(number) / "state.safetensors" for number in range(5)]
    for number in range(4):
        folder.save_model(number, arrays(number), MAP, {})
        if number == 0:
            first = states[0].stat().st_ino
    spares.turn()
    folder.save_model(4, arrays(4), MAP, {})
    assert states[4].stat().st_ino == first
    kept = read_groups(states[4])["model"]
    assert all((kept[name] == array).all() for name, array in arrays(4).items())


@pytest.mark.parametrize("mapped", [False, True], ids=["open", "mapped"])
def test_a_reader_of_a_deleted_version_can_read_all_of_it(folder, spares, mapped):
    folder.save_model(0, arrays(0), MAP, {})
    state = folder.version(0) / "state.safetensors"
    expected = state.read_bytes()
    with contextlib.ExitStack() as reading:
        reader = reading.enter_context(state.open("rb"))
        if mapped:
            view = reading.enter_context(mmap.mmap(reader.fileno(), 0, access=mmap.ACCESS_READ))
            reader.close()
        for number in range(1, 9):
            folder.save_model(number, arrays(number), MAP, {})
            spares.turn()
        assert (view[:] if mapped else reader.read()) == expected
