"""A round without training: devices measure a model on their own data and send nothing of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from edge_server.cli.main import main
from edge_server.config.load import load_config
from edge_server.coordinator.round_record import measured_device
from edge_server.coordinator.tasks.task import counts_classes
from edge_server.observability.report.figure_tables import sum_by_class
from edge_server.observability.terminal.measured import print_measured, rows_of
from edge_server.security.secure_aggregation.protocol import COHORT
from edge_server.storage.records import MeasuredDevice, RoundRecord
from schemas.values import ModelSpec, TrainingMetrics
from tests.edge_server.observability.terminal.shown import record
from tests.integration.bench import Bench
from tests.slow import mark_slow

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
        # Of the digits 0 to 9 every held-out example is counted, and the shares are those of the accuracy.
        assert list(device.by_class) == [str(digit) for digit in range(10)]
        assert sum(examples for examples, _ in device.by_class.values()) == device.examples
        right = sum(right for _, right in device.by_class.values())
        assert right / device.examples == pytest.approx(device.metrics["accuracy"])


@pytest.mark.parametrize(
    "words", [["federation.trains=true"], ["federation.by-class=false"], ["model.task=regression"]], ids=str
)
def test_devices_count_classes_only_if_they_measure_and_nothing_keeps_it_secret(words: list[str]) -> None:
    def asked(*words: str, recipe: str = "fedavg") -> bool:
        config = load_config(recipe, ["federation.trains=false", *words])
        model = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10, task=config.model.task)
        return counts_classes(config, model)

    assert asked()
    assert not asked(*words)
    assert not asked(recipe="dp-fedavg")
    assert asked("privacy.release-metrics=true", recipe="dp-fedavg")


def test_the_command_prints_every_devices_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = "model.name=tests.edge_server.own_networks:normed"
    words = [*WORDS, network, "rounds=2", "--out", str(tmp_path / "run")]
    assert main(["simulate", "attending", *words]) == 0
    last = json.loads((tmp_path / "run" / "history.jsonl").read_text().splitlines()[-1])
    capsys.readouterr()
    words = [
        "evaluate",
        str(tmp_path / "run"),
        "attending",
        *WORDS,
        network,
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
    # The model is the run's last one, and so are its tiers.
    assert record.test_accuracy == last["test_accuracy"]
    assert {str(tier): accuracy for tier, accuracy in record.tier_accuracy.items()} == last["tier_accuracy"]
    assert len(set(last["tier_accuracy"].values())) > 1
    assert not list((tmp_path / "e").glob("onnx/*.onnx"))


@mark_slow
def test_masked_figures_are_seen_in_sum_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "heterofl", *WORDS, "rounds=1", "--out", str(tmp_path / "run")]) == 0
    rows, classes = [], []
    for masked in ("false", "true"):
        out = tmp_path / masked
        words = [str(tmp_path / "run"), "heterofl", *WORDS, f"privacy.secure-aggregation={masked}"]
        capsys.readouterr()
        assert main(["evaluate", *words, "--simulate", "--format", "json", "--out", str(out)]) == 0
        rows.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
        record = RoundRecord.model_validate_json((out / "history.jsonl").read_text())
        classes.append(sum_by_class(record.measured.values()))
    (of_all,) = rows[1]
    assert (of_all["name"], of_all["devices"]) == ("all", 5)
    assert of_all["examples"] == rows[0][-1]["examples"]
    assert of_all["metrics"] == pytest.approx(rows[0][-1]["metrics"], abs=1e-5)
    assert classes[0] == classes[1]
    assert record.measured.keys() == {COHORT}
    assert record.measured[COHORT].loss is not None


def test_a_model_that_does_not_exist_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "nowhere", "attending", *WORDS, "--simulate", "--out", str(tmp_path / "e")]) == 2
    assert "'nowhere' is not a version of a registry" in capsys.readouterr().err


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


def test_shares_of_classes_are_pooled_with_wilsons_interval(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    measured = {
        "a": MeasuredDevice(
            tier=1, examples=3, metrics={"accuracy": 1.0}, by_class={"cat": (2, 2), "dog": (1, 1)}
        ),
        "b": MeasuredDevice(
            tier=2, examples=3, metrics={"accuracy": 0.0}, by_class={"cat": (2, 1), "dog": (1, 0)}
        ),
        "c": MeasuredDevice(tier=3, examples=1, metrics={"accuracy": 0.0}),
    }
    cat = {row.name: row.by_class.get("cat") for row in rows_of(measured)}
    assert cat["c"] is cat["tier 3"] is None
    assert cat["all"] is not None
    assert (cat["all"].examples, cat["all"].right, cat["all"].recall) == (4, 3, 0.75)
    # Wilson's interval of 3 of 4: (0.75 + z^2/8 -+ z sqrt(0.75 * 0.25 / 4 + z^2/64)) / (1 + z^2/4).
    assert cat["all"].interval == pytest.approx((0.3006, 0.9544), abs=1e-4)
    line = record(1, measured=measured).model_dump_json()
    (tmp_path / "history.jsonl").write_text(line + "\n")
    assert print_measured(tmp_path, "text") == 0
    text = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["cat", "4", "75.0%", "30.1-95.4%", "100.0%", "50.0%", "-"] in text
    assert print_measured(tmp_path, "json") == 0
    rows = {row["name"]: row["by_class"] for row in json.loads(capsys.readouterr().out)}
    assert (rows["tier 2"]["dog"]["examples"], rows["tier 2"]["dog"]["recall"]) == (1, 0.0)
    assert rows["c"] == {}


def test_counts_of_more_examples_than_are_believed_are_scaled() -> None:
    claimed = TrainingMetrics(examples=10, epochs=0, steps=0, measured_on=40, by_class=((30, 20), (10, 1)))
    device = measured_device(claimed, 1, ("cat", "dog"))
    assert (device.examples, device.by_class) == (10, {"cat": (7, 5), "dog": (2, 0)})
