"""The model registry: versions entered from runs, their cards and metrics, and interrupted entries."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edge_client.security.trusted_key import check_model, read_trusted_key
from edge_server.releases.registry.card import model_card
from edge_server.releases.registry.difference import differences, weight_distance
from edge_server.releases.registry.register import default_registry, enter_run, try_enter_run
from edge_server.releases.registry.registry import Registry, TierModel
from edge_server.security.manifest_signer import open_manifest_signer
from edge_server.storage.journal import AggregatedUpdate, Journal
from edge_server.storage.records import DeviceRecord, Summary
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.chunks import digest_of
from schemas.values import DeliveryVerdict
from tests.edge_server.observability.terminal import shown
from tests.edge_server.releases.rollout.sample_versions import classifier, entered, fitted, key_in

STATES = [digest_of(f"round {number}".encode()) for number in (1, 2, 3)]


def run_folder(path: Path, *, run: str = "home-1", accuracy: float = 0.8, scale: float = 1.0) -> Path:
    """The files of a finished run of three rounds and one tier, as far as the registry reads them."""
    folder = RunFolder(path)
    for name in ("models", "onnx"):
        (path / name).mkdir(parents=True)
    for number in (1, 2, 3):
        figures = {
            "tier_accuracy": {1: accuracy},
            "test_accuracy": accuracy,
            "test_metrics": {"accuracy": accuracy},
            "tier_metrics": {1: {"accuracy": accuracy}},
        }
        folder.add_round(shown.record(number, selected=(), completed=(), **figures))
    journal = Journal(folder.journal, durable=False)
    for number, state in enumerate(STATES, start=1):
        journal.write_closed_round(
            number, state, updates=[AggregatedUpdate("pi", 1, state, 0)], over=[], record="", traffic={}
        )
    for attempt, clients in enumerate(({"pi": (3, 90), "gone": (2, 50)}, {"pi": (1, 90)}), start=1):
        journal.write_planning(attempt, attempt, {}, clients=clients)
    journal.close()
    manifest_signer = open_manifest_signer("home", run, path, None)
    params = {"weight": np.full((2, 2), scale, np.float32)}
    folder.save_model(3, params, ChannelMap(groups={}, parameters={}), {"federation": "home"}, durable=False)
    manifest_signer.model(folder.version(3) / "manifest.json", 3)
    onnx = classifier(folder.onnx(1), fitted() * scale)
    provenance = {"round": "3", "tier": "1", "prune_ratio": "0.5", "parent_sha256": STATES[2]}
    manifest_signer.export(onnx, provenance, SubModelSpec())
    device = DeviceRecord(
        device="pi",
        tier=1,
        ratio=0.5,
        parameters=650,
        macs=640,
        onnx_bytes=9,
        onnx_accuracy=0.9,
        metrics={"accuracy": 0.9},
        latency_ms=2.0,
    )
    folder.write_summary(
        Summary(
            federation="home",
            run=run,
            recipe="attending",
            outcome="finished",
            rounds=3,
            duration_s=3.0,
            model="one-layer",
            parameters=650,
            test_accuracy=accuracy,
            test_metrics={"accuracy": accuracy},
            devices=(
                device,
                device.model_copy(
                    update={"device": "pi-2", "onnx_accuracy": 0.7, "metrics": {"accuracy": 0.7}}
                ),
            ),
        )
    )
    return path


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "registry")


def test_a_run_is_entered_with_its_parents_metrics_and_signature(registry, tmp_path) -> None:
    entered_version = enter_run(registry, run_folder(tmp_path / "home-1"))
    (version,) = registry.versions()
    assert version == entered_version
    assert (version.version, version.round, version.recipe) == ("home-1", 3, "attending")
    assert (version.state_sha256, version.parents) == (STATES[2], (STATES[1], STATES[0]))
    tier = version.tier(1)
    # Two devices with 90% and 70%: 80% on average.
    assert (tier.ratio, tier.parent_sha256, tier.devices, tier.device_accuracy) == (0.5, STATES[2], 2, 0.8)
    assert tier.devices_serving == 2
    # "pi" trained tier 3 first and tier 1 last; "gone" took part only in the first round.
    assert version.device_tiers == {"pi": 1, "gone": 2}
    public = registry.version_path("home-1") / "signing.pub"
    assert version.key == read_trusted_key(public).fingerprint


def test_the_registry_shows_how_many_devices_serve_the_delivered_model(registry, tmp_path) -> None:
    run = run_folder(tmp_path / "run")
    path = run / "summary.json"
    summary = Summary.model_validate_json(path.read_bytes())
    verdict = DeliveryVerdict(served=False, why="accuracy: 70.0%, 90.0% before", earlier="home-0")
    devices = (summary.devices[0], summary.devices[1].model_copy(update={"verdict": verdict}))
    path.write_text(summary.model_copy(update={"devices": devices}).model_dump_json())
    tier = enter_run(registry, run, name="home-1").tier(1)
    assert (tier.devices, tier.devices_serving) == (2, 1)
    assert "80.00% (2, 1 of them serving it)" in (registry.version_path("home-1") / "README.md").read_text()


def test_an_entered_version_does_not_need_the_run_folder(registry, tmp_path) -> None:
    import shutil

    run = run_folder(tmp_path / "home-1")
    enter_run(registry, run)
    shutil.rmtree(run)
    onnx, key = registry.onnx("home-1", 1), read_trusted_key(registry.version_path("home-1") / "signing.pub")
    assert check_model(onnx, onnx.read_bytes(), key, exported_by="server").run == "home-1"
    names = {path.name for path in (registry.version_path("home-1") / "model").iterdir()}
    assert names == {"state.safetensors", "channel-map.json", "manifest.json", "manifest.signed.json"}


def test_the_card_has_a_machine_readable_header_and_describes_each_file(registry, tmp_path) -> None:
    yaml = pytest.importorskip("yaml")
    version = enter_run(registry, run_folder(tmp_path / "home-1"))
    card = (registry.version_path("home-1") / "README.md").read_text()
    header = yaml.safe_load(re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)[1])
    assert (header["version"], header["recipe"], header["parents"]) == (
        "home-1",
        "attending",
        list(version.parents),
    )
    assert header["tiers"][0]["sha256"] == version.tier(1).sha256
    assert header["epsilon"] is None
    assert "| [1](tier-1.onnx) | 50% |" in card
    assert "edge-client infer tier-1.onnx INPUT --trust signing.pub" in card


def test_text_that_would_break_the_card_header_is_escaped(registry, tmp_path) -> None:
    yaml = pytest.importorskip("yaml")
    run = run_folder(tmp_path / "home-1")
    summary = Summary.model_validate_json((run / "summary.json").read_bytes())
    odd = 'yes: "no"\n- x #'
    (run / "summary.json").write_text(summary.model_copy(update={"recipe": odd}).model_dump_json())
    enter_run(registry, run)
    card = (registry.version_path("home-1") / "README.md").read_text()
    assert yaml.safe_load(card.split("---\n")[1])["recipe"] == odd


def test_a_version_entered_again_replaces_the_previous_entry(registry, tmp_path) -> None:
    run = run_folder(tmp_path / "home-1")
    first = enter_run(registry, run)
    again = enter_run(registry, run)
    assert [version.created_at for version in registry.versions()] == [again.created_at]
    assert again.created_at > first.created_at


def test_a_kill_while_a_version_is_entered_leaves_no_partial_version(registry, tmp_path, monkeypatch) -> None:
    run = run_folder(tmp_path / "home-1")
    rename = Path.rename

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        enter_run(registry, run)
    assert registry.versions() == []
    assert not registry.version_path("home-1").exists()
    monkeypatch.setattr(Path, "rename", rename)
    enter_run(registry, run)
    assert [version.version for version in registry.versions()] == ["home-1"]


def test_a_file_that_does_not_match_its_signature_is_not_entered(registry, tmp_path) -> None:
    run = run_folder(tmp_path / "home-1")
    classifier(run / "onnx" / "tier-1.onnx", fitted() * 2)
    with pytest.raises(ConfigError, match="is not trusted"):
        enter_run(registry, run)
    assert registry.versions() == []


def test_an_unfinished_run_or_a_run_without_models_is_not_entered(registry, tmp_path) -> None:
    with pytest.raises(ConfigError, match="the folder of a run that has ended"):
        enter_run(registry, tmp_path)
    run = run_folder(tmp_path / "home-1")
    (run / "onnx" / "tier-1.onnx").unlink()
    with pytest.raises(ConfigError, match="no ONNX files"):
        enter_run(registry, run)
    assert try_enter_run(registry.folder, run) is None


def test_an_unwritable_registry_does_not_fail_the_run(tmp_path, caplog) -> None:
    run = run_folder(tmp_path / "home-1")
    (tmp_path / "registry").write_text("in the way")
    assert try_enter_run(default_registry(run), run) is None
    assert "not entered in registry" in caplog.text


def test_the_error_for_an_unknown_version_suggests_the_nearest(registry, tmp_path) -> None:
    enter_run(registry, run_folder(tmp_path / "home-1"))
    with pytest.raises(ConfigError, match=r"there is no version 'home-2' in .*did you mean 'home-1'"):
        registry.version("home-2")


def test_each_federation_has_its_own_active_version(registry) -> None:
    version_a = entered(registry, "a-1", fitted(), None, federation="a")
    version_b = entered(registry, "b-1", fitted(), None, federation="b")
    registry.set_active(version_a)
    registry.set_active(version_b)
    registry.set_active(entered(registry, "a-2", fitted(), None, federation="a"))
    assert registry.actives() == {"a": "a-2", "b": "b-1"}


def test_the_card_of_an_unsigned_version_states_it(registry, tmp_path) -> None:
    run = run_folder(tmp_path / "home-1")
    (run / "onnx" / "tier-1.onnx.manifest.json").unlink()
    (run / "signing.pub").unlink()
    assert enter_run(registry, run).key is None
    assert "Not signed." in (registry.version_path("home-1") / "README.md").read_text()


def test_a_damaged_database_is_reported(registry) -> None:
    registry.folder.mkdir()
    (registry.folder / "registry.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ConfigError, match="file is not a database"):
        registry.versions()


def test_the_differences_between_two_versions_are_listed(registry, tmp_path) -> None:
    before = enter_run(registry, run_folder(tmp_path / "home-1"))
    after = enter_run(registry, run_folder(tmp_path / "home-2", run="home-2", accuracy=0.9, scale=1.5))
    found = {difference.what: difference for difference in differences(before, after)}
    assert found["tier 1: test accuracy"].change == "+10.00 points"
    assert found["run"].after == "home-2"
    assert "recipe" not in found
    # All four weights change from 1 to 1.5: the distance is half of the first model's norm.
    assert weight_distance(registry.version_path("home-1"), registry.version_path("home-2")) == pytest.approx(
        0.5
    )
    assert differences(before, before) == []


def test_versions_of_a_network_of_numbers_are_told_by_their_error(registry, tmp_path) -> None:
    before, after = (
        enter_run(registry, run_folder(tmp_path / name, run=name)).model_copy(
            update={"test_metrics": {"mae": error, "rmse": 2 * error}, "tiers": (tier_of(error),)}
        )
        for name, error in (("home-1", 0.5), ("home-2", 0.25))
    )
    found = {difference.what: difference for difference in differences(before, after)}
    shown = found["tier 1: test mae"]
    assert (shown.before, shown.after, shown.change) == ("0.5", "0.25", "-50.0%")
    assert found["tier 1: mae on devices"].after == "0.25"
    card = model_card(after, {"model": {"task": "regression", "input_shape": [4], "num_classes": 2}})
    assert "It takes inputs of 4 and gives 2 numbers" in card
    assert "mae 0.25" in card
    assert "`test` is the mae on" in card
    assert "pipeline_tag" not in card


def tier_of(error: float) -> TierModel:
    figures = {"mae": error, "rmse": 2 * error}
    return TierModel(
        tier=1, ratio=0.5, sha256="0" * 64, bytes=10, devices=1, test_metrics=figures, device_metrics=figures
    )


def test_without_stored_weights_there_is_no_distance(registry) -> None:
    entered(registry, "a", fitted(), key_in(registry.folder.parent))
    assert weight_distance(registry.version_path("a"), registry.version_path("a")) is None


def test_the_version_is_stored_as_json_next_to_its_files(registry, tmp_path) -> None:
    version = enter_run(registry, run_folder(tmp_path / "home-1"))
    written = json.loads((registry.version_path("home-1") / "version.json").read_text())
    assert written["tiers"][0]["sha256"] == version.tier(1).sha256


def test_a_registry_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as newer:
        newer.execute("PRAGMA user_version=2")
    with pytest.raises(
        ConfigError, match=r"has format 2 and this version .* knows 1: install the newer version"
    ):
        Registry(tmp_path).versions()
