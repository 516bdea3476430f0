"""The writers with the real packages; tests of packages that are not installed are skipped."""

import importlib.util
import os
from pathlib import Path
from typing import Any

import pytest

from edge_server.observability.trackers.registry import make_writer
from edge_server.observability.trackers.writers import LAST, RunFacts, Writer, scalars
from tests.edge_server.observability.terminal.shown import scored, summary


def needs(name: str, extra: str) -> pytest.MarkDecorator:
    installed = importlib.util.find_spec(name) is not None
    return pytest.mark.skipif(
        not installed, reason=f"{name} is not installed: pip install 'edge-federation[{extra}]'"
    )


def facts(out: Path) -> RunFacts:
    settings = {"federation.rounds": 10, "strategy.layers": "x" * 2000}
    return RunFacts("home", "home-seed-0", "home-seed-0-1a2b3c4d", 10, out, settings)


def begun(word: str, out: Path) -> tuple[Writer, int]:
    writer = make_writer(word)
    return writer, writer.begin(facts(out))


def write_rounds(word: str, out: Path, rounds: int) -> Writer:
    """Write `rounds` rounds and return the writer without ending the run, as a killed process does."""
    writer, last = begun(word, out)
    assert last == 0
    for number in range(1, rounds + 1):
        writer.round(scored(number))
    return writer


def continue_run(word: str, out: Path, *, after: int) -> None:
    """Continue the run to round four in another writer, and end it."""
    writer, last = begun(word, out)
    assert last == after
    for number in range(last + 1, 5):
        writer.round(scored(number))
    writer.end(summary(rounds=4))


# The accuracy of `scored(n)` is 1 - 0.5 / n.
ACCURACIES = [(1, 0.5), (2, 0.75), (3, pytest.approx(1 - 0.5 / 3)), (4, 0.875)]


def events(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (run,) = folder.iterdir()
    assert run.name == "home-seed-0-1a2b3c4d"
    read = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()
    return [(point.step, point.value) for point in read.Scalars(tag)]


@needs("tensorboard", "tensorboard")
def test_tensorboard_has_each_round_once_after_a_kill(tmp_path: Path) -> None:
    word = f"tensorboard={tmp_path / 'boards'}"
    killed: Any = write_rounds(word, tmp_path, 2)
    # The process was killed while it wrote round three.
    killed.writer.add_scalar("test/accuracy", 0.1, 3)
    killed.writer.flush()
    continue_run(word, tmp_path, after=2)
    assert events(tmp_path / "boards", "test/accuracy") == ACCURACIES
    assert [step for step, _ in events(tmp_path / "boards", LAST)] == [1, 2, 3, 4]
    assert events(tmp_path / "boards", "tier-5/accuracy")[0] == (1, 0.75)


@needs("tensorboard", "tensorboard")
def test_tensorboard_continues_with_a_truncated_file(tmp_path: Path) -> None:
    word = f"tensorboard={tmp_path / 'boards'}"
    write_rounds(word, tmp_path, 2)
    (file,) = (tmp_path / "boards").rglob("events.*")
    with file.open("r+b") as open_file:
        open_file.truncate(file.stat().st_size - 5)
    # The truncation removed the mark that round two is complete.
    continue_run(word, tmp_path, after=1)
    assert events(tmp_path / "boards", "test/accuracy") == ACCURACIES


@needs("mlflow", "mlflow")
def test_mlflow_has_each_round_once_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow.tracking import MlflowClient

    # MLflow no longer recommends the file store, but it needs no database library.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    write_rounds(f"mlflow={uri}", tmp_path, 2)
    continue_run(f"mlflow={uri}", tmp_path, after=2)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("home")
    (run,) = client.search_runs([experiment.experiment_id])
    points = client.get_metric_history(run.info.run_id, "test/accuracy")
    assert sorted((point.step, point.value) for point in points) == ACCURACIES
    assert run.info.status == "FINISHED"
    assert run.data.params["federation.rounds"] == "10"


@needs("wandb", "wandb")
def test_wandb_stores_each_round_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}.items():
        monkeypatch.setenv(key, value)
    writer, last = begun("wandb=edge", tmp_path)
    assert last == 0
    writer.round(scored(1))
    writer.round(scored(2))
    writer.end(summary(rounds=2))
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-home-seed-0-1a2b3c4d.wandb")
    found = file.read_bytes()
    assert all(name.encode() in found for name in scalars(scored(1)))
    assert os.environ["WANDB_MODE"] == "offline"
