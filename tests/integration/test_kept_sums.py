"""Sums that a run keeps: a device can be taken out of them, and another run begins with them."""

import json
import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from edge_server.cli.main import main
from edge_server.coordinator.removal import forget_device
from edge_server.coordinator.replay import replay
from edge_server.releases.registry.register import enter_run
from edge_server.releases.registry.registry import Registry
from edge_server.storage.run_folder import RunFolder
from edge_server.strategy.groups.device_sums import held_sums
from edge_server.strategy.groups.feature_sums import RidgeHead
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap

WORDS = ("model.name=mlp", "num-clients=4", "tiers.ratios=[{linear2 = 0.4}, 0.0]", "workers=1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run, which tests do not change."""
    out = tmp_path_factory.mktemp("forget") / "run"
    assert main(["simulate", "ridge", *WORDS, "--out", str(out)]) == 0
    return out


def copy_of(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / "run"))


def test_a_device_that_is_forgotten_leaves_the_heads_of_all_others(finished: Path, tmp_path: Path) -> None:
    run = copy_of(finished, tmp_path)
    before = RunFolder(run).load_state(1)
    channel_map = ChannelMap.model_validate_json((run / "models/round-0001/channel-map.json").read_bytes())
    rest = [s for s in held_sums(before.groups["feature-sums"]) if s.device != "device-0002"]
    wanted = RidgeHead().with_heads(rest, before.params, channel_map)
    assert main(["models", "forget", "device-0002", str(run)]) == 0
    after = RunFolder(run).load_state(2)
    assert all(np.array_equal(after.params[name], wanted.params[name]) for name in after.params)
    assert (after.params["linear3.weight"] != before.params["linear3.weight"]).any()
    assert "device-0002" not in str(list(after.groups["feature-sums"]))
    assert not [path for path in run.rglob("round-*1*") if path.suffix == ".safetensors" or path.is_dir()]
    assert not [*(run / "blobs").iterdir()]
    last = json.loads((run / "history.jsonl").read_text().splitlines()[-1])
    assert (last["round"], last["left_out"]) == (2, ["device-0002"])
    assert last["completed"] == ["device-0001", "device-0003", "device-0004"]
    session = onnxruntime.InferenceSession(run / "onnx" / "tier-2.onnx")
    assert session.get_modelmeta().custom_metadata_map["fl.round"] == "2"
    version = enter_run(Registry(tmp_path / "registry"), run)
    assert (version.round, version.state_sha256) == (
        2,
        json.loads((run / "models/round-0002/manifest.json").read_text())["state_sha256"],
    )
    assert [each.verdict for each in replay(run)] == ["not kept", "not kept"]
    with pytest.raises(ConfigError, match="holds no sums of 'device-0002'"):
        forget_device(run, "device-0002")


def test_a_removal_that_was_cut_off_is_finished_by_the_next_one(
    finished: Path, tmp_path: Path, monkeypatch
) -> None:
    run = copy_of(finished, tmp_path)
    with monkeypatch.context() as cut_off:
        cut_off.setattr("edge_server.coordinator.removal._export", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            forget_device(run, "device-0001")
    assert (run / "models/round-0001").is_dir()
    with pytest.raises(ConfigError, match="holds no sums of 'device-0001'"):
        forget_device(run, "device-0001")
    assert not (run / "models/round-0001").is_dir()


def test_what_cannot_be_forgotten_is_said(finished: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no sums of 'device-001'.*device-0001"):
        forget_device(finished, "device-001")
    running = copy_of(finished, tmp_path)
    (running / "summary.json").unlink()
    with pytest.raises(ConfigError, match="is not over"):
        forget_device(running, "device-0001")


def test_a_run_that_starts_from_another_begins_with_its_sums(finished: Path, tmp_path: Path, capsys) -> None:
    out, start = tmp_path / "later", f"model.from={finished}"
    assert main(["simulate", "ridge", *WORDS, "num-clients=1", start, "--out", str(out)]) == 0
    assert (
        "begins with the sums of device-0001, device-0002, device-0003, device-0004"
        in capsys.readouterr().err
    )
    earlier, later = (
        held_sums(RunFolder(run).load_state(1).groups["feature-sums"]) for run in (finished, out)
    )
    assert [each.device for each in later] == [each.device for each in earlier]
    same = [
        np.array_equal(a.arrays["targets"], b.arrays["targets"]) for a, b in zip(earlier, later, strict=True)
    ]
    assert same == [False, True, True, True]
    alone = tmp_path / "alone"
    words = [*WORDS, "num-clients=1", start, 'strategy.groups=[{name="ridge", earlier=false}]']
    assert main(["simulate", "ridge", *words, "--out", str(alone)]) == 0
    assert [s.device for s in held_sums(RunFolder(alone).load_state(1).groups["feature-sums"])] == [
        "device-0001"
    ]
