"""A round without training: devices measure a model on their own data and send nothing of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from edge_server.cli.main import main
from edge_server.observability.terminal.measured import rows_of
from edge_server.storage.records import MeasuredDevice, RoundRecord
from tests.integration.bench import Bench

WORDS = ("data.source=digits", "model.name=mlp", "num-clients=5", "simulation.hold-out=0.2", "workers=1")


@pytest.mark.parametrize("recipe", ["attending", "fedrad", "fedp3", "attending-l1"])
def test_an_evaluation_changes_no_model_and_returns_no_parameters(tmp_path: Path, recipe: str) -> None:
    bench = Bench(tmp_path, recipe, "federation.trains=false", "model.name=mlp", "clients.fraction=1.0")
    before = {name: np.array(array) for name, array in bench.coordinator.model.state.params.items()}
    record, updates = bench.round(1)
    assert record.completed == tuple(sorted(updates))
    assert all((bench.coordinator.model.state.params[name] == array).all() for name, array in before.items())
    # A model of 200 thousand numbers would take 800 kB.
    assert all(update.blob.size < 1000 for update in updates.values())
    assert set(record.measured) == set(updates)
    for name, device in record.measured.items():
        assert device.examples == updates[name].metrics.measured_on > 0
        assert 0 <= device.metrics["accuracy"] <= 1
        assert device.loss is not None


def test_the_command_prints_every_devices_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "attending", *WORDS, "rounds=2", "--out", str(tmp_path / "run")]) == 0
    last = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    capsys.readouterr()
    words = [
        "evaluate",
        str(tmp_path / "run"),
        "attending",
        *WORDS,
        "--simulate",
        "--out",
        str(tmp_path / "e"),
    ]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "device-0001" in printed
    assert "95 % interval" in printed
    (line,) = (tmp_path / "e" / "history.jsonl").read_text().splitlines()
    record = RoundRecord.model_validate_json(line)
    assert len(record.measured) == 5
    # The model is the run's last one.
    assert record.test_accuracy == last["test_accuracy"]
    assert not list((tmp_path / "e").glob("onnx/*.onnx"))


def test_a_model_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "nowhere", "attending", *WORDS, "--simulate", "--out", str(tmp_path / "e")]) == 2
    assert "'nowhere' is no version of a registry" in capsys.readouterr().err


def test_devices_tiers_and_all_are_pooled_by_examples() -> None:
    measured = {
        "a": MeasuredDevice(tier=1, examples=10, metrics={"accuracy": 0.5}),
        "b": MeasuredDevice(tier=1, examples=30, metrics={"accuracy": 0.9}),
        "c": MeasuredDevice(tier=2, examples=40, metrics={"accuracy": 1.0}),
    }
    rows = {row.name: row for row in rows_of(measured)}
    assert rows["tier 1"].metrics["accuracy"] == pytest.approx(0.8)
    assert rows["all"].metrics["accuracy"] == pytest.approx(0.9)
    assert (rows["all"].devices, rows["all"].examples) == (3, 80)
    low, high = rows["a"].interval or (0, 0)
    assert low < 0.5 < high
