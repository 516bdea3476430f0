"""Forecasts of "no change" and "the same as a season ago", which need no model."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from edge_client.agent.task_runner import training_metrics
from edge_client.cli.main import main
from edge_client.data.columns import features_of
from edge_client.data.sources import load_source
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.metrics import naive_forecasts
from edge_client.data.tasks.words import reference_text
from edge_client.inference.export.metadata import describe
from edge_client.training.results import Evaluation, TrainingResult
from edge_client.training.trainer import Trained
from schemas.values import Preprocessing, TrainingMetrics
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.inference.test_onnx_model import write_model

SEASON = (0.0, 1.0, 4.0, 1.0)


@pytest.mark.parametrize("change", ["", " change"])
def test_a_season_of_four_rows_is_found_and_repeated(change: str) -> None:
    series = np.array(SEASON * 5)
    windows = np.stack([series[start : start + 6] for start in range(12)])[:, None]
    after = np.stack([series[6 + start : 8 + start] for start in range(12)])
    labels = after - windows[:, 0, -1:] if change else after
    names = [f"co2+1{change}", f"co2+2{change}"]
    found = naive_forecasts(windows, labels, names, ["co2"])
    last = windows[:, 0, -1:]
    assert np.array_equal(found[:, 0], np.broadcast_to(last - last if change else last, (12, 2)))
    assert np.array_equal(found[:, 1], labels)


def test_a_walk_has_no_season_and_a_label_that_is_no_input_has_no_forecast() -> None:
    walk = np.random.default_rng(0).normal(size=400).cumsum()
    windows = np.stack([walk[start : start + 20] for start in range(300)])[:, None]
    labels = np.stack([[walk[start + 20]] * 2 for start in range(300)])
    found = naive_forecasts(windows, labels, ["co2+1", "co+1"], ["co2"])
    assert np.array_equal(found[:, 0, 0], walk[19:319])
    assert np.isnan(found[:, 1, 0]).all()
    assert np.isnan(found[:, :, 1]).all()


def test_a_forecasts_figures_have_both_beside_the_error(tmp_path: Path) -> None:
    rows = [f"{place},{value}" for place, value in enumerate(SEASON * 30)]
    (tmp_path / "air.csv").write_text("other,co2\n" + "\n".join(rows) + "\n")
    source = f"csv:{tmp_path}/air.csv?label=co2&columns=co2&window=6&horizon=1"
    data = in_task(load_source(source), "forecasting", ())
    outputs = np.zeros((len(data), 1))
    found = data.learning_task.measure_answers(data.answers(outputs, data.targets(data.images)))
    assert next(iter(found)) == "mae"
    # From a row to the next one the series changes by 1, 3, 3 and 1.
    assert found["no-change"] == pytest.approx(2, abs=0.05)
    assert found["season-ago"] == 0
    assert reference_text(found) == f"no change {found['no-change']:.4g}, season ago 0"
    assert "no-change" not in in_task(load_source(source), "regression", ()).learning_task.measure_answers(
        data.answers(outputs, outputs)
    )


def test_infer_shows_what_a_forecast_has_to_beat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model repeats its window of a season, as "the same as a season ago" does."""
    rows = [f"{value}" for value in SEASON * 30]
    (tmp_path / "air.csv").write_text("co2\n" + "\n".join(rows) + "\n")
    message = onnx.load(write_model(tmp_path / "model.onnx", shape=(1, 4)))
    names = tuple(f"co2+{step}" for step in range(1, 5))
    about = Preprocessing(scale=1.0, class_names=names, columns=features_of(("co2",)))
    describe(message, input_shape=(1, 4), preprocessing=about, provenance={}, task="forecasting")
    onnx.save(message, str(tmp_path / "model.onnx"))
    source = f"csv:{tmp_path}/air.csv?label=co2&window=4&horizon=4"
    assert main(["infer", str(tmp_path / "model.onnx"), source, "--format", "json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert [*metrics] == ["mae", "rmse", "r2", "no-change", "season-ago"]
    assert (metrics["mae"], metrics["season-ago"]) == (0, 0)
    assert metrics["no-change"] > 1


def test_a_device_measures_what_a_forecast_has_to_beat_with_and_without_training() -> None:
    figures = {"mae": 1.0, "rmse": 1.0, "r2": 0.5, "no-change": 2.0}
    found = Evaluation(1.0, figures, 10)
    asked = task()
    asked = asked.model_copy(update={"model": asked.model.model_copy(update={"task": "forecasting"})})
    for epochs in (0, 1):
        result = TrainingResult({}, TrainingMetrics(examples=10, epochs=epochs, steps=epochs))
        trained = Trained.of(result, found, found, delta={})
        assert [*training_metrics(asked, trained, 0.0).metrics] == [*figures]
