"""A user's own local work: its results, inputs and refusals."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.cli.config_file import read_client_file
from edge_client.cli.main import EDGE_CLIENT
from edge_client.training.flower.settings import app_table, flat_config, read_words
from edge_client.training.results import Evaluation, TrainingResult
from edge_client.training.torch_trainer import ModuleJob, TorchTrainer
from schemas.errors import ConfigError, PeerError, Reason
from schemas.messages import Task
from schemas.values import TrainingMetrics
from tests.groups import decode_groups
from tests.integration.bench import Bench


class Adding:
    """Adds one to every weight and reports seven examples."""

    def check(self, task: Task) -> None:
        if task.round > 1:
            raise PeerError("only the first", reason=Reason.INCOMPATIBLE)

    def train(self, job: ModuleJob) -> TrainingResult:
        with torch.no_grad():
            for parameter in job.module.parameters():
                parameter += 1
        return TrainingResult({}, TrainingMetrics(examples=7, epochs=1, steps=1, train_loss=0.5))

    def evaluate(self, job: ModuleJob) -> Evaluation:
        return Evaluation(2.0, {"accuracy": 0.25}, 4)


def context_of(bench: Bench, name: str) -> TaskContext:
    return replace(bench.places[name], trainer=TorchTrainer(Adding()))


@pytest.mark.parametrize("name", ["weak", "strong"])
def test_the_change_of_the_weights_is_the_update_at_every_tier(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, "heterofl")
    task, place = bench.tasks(1, 1)[name], context_of(bench, name)
    update = do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)
    groups = decode_groups(place.store.blob_path(update.blob.digest).read_bytes())
    assert task.tier == (1 if name == "weak" else 2)
    for array in groups["model"].values():
        assert np.allclose(array, 1)
    metrics = update.metrics
    assert (metrics.examples, metrics.train_loss, metrics.received_loss, metrics.accuracy) == (
        7,
        0.5,
        2.0,
        0.25,
    )


def test_a_task_that_own_work_refuses_is_declined_with_its_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg")
    task = bench.tasks(1, 1)["weak"].model_copy(update={"round": 2})
    with pytest.raises(PeerError, match="only the first") as refused:
        do_training(task, context_of(bench, "weak"), on_epoch=lambda _: None, should_stop=lambda: False)
    assert refused.value.reason is Reason.INCOMPATIBLE


def test_settings_are_read_as_toml_or_else_as_text() -> None:
    words = ["epochs=3", "lr=1e-2", "augment=true", "data=/home/a b.npz", 'name="x"']
    assert read_words(words, option="--flower-config") == {
        "epochs": 3,
        "lr": 0.01,
        "augment": True,
        "data": "/home/a b.npz",
        "name": "x",
    }
    for wrong in ("epochs", "=3", "sizes=[1, 2]"):
        with pytest.raises(ConfigError, match="--flower-config"):
            read_words([wrong], option="--flower-config")


def test_an_apps_own_config_is_flattened_as_in_flower(tmp_path: Path) -> None:
    text = '[tool.flwr.app.config]\nepochs = 2\n[tool.flwr.app.config.data]\npath = "x"\nlist = [1]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    assert flat_config(app_table(tmp_path).get("config")) == {"epochs": 2, "data.path": "x"}
    assert app_table(tmp_path / "elsewhere") == {}


def test_a_client_file_names_an_app_and_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "client.toml"
    path.write_text('flower = "app:app"\nflower-config = ["epochs=3"]\nflower-node = ["partition-id=1"]\n')
    assert read_client_file(path) == {
        "flower": "app:app",
        "flower_config": ["epochs=3"],
        "flower_node": ["partition-id=1"],
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--flower-config", "epochs=3"), "--flower-config is for --flower"),
        (("--flower", "app:app", "--checkpoint-s", "5"), "--checkpoint-s"),
        (("--flower", "app:app", "--flower-node", "x"), "expected key=value"),
    ],
)
def test_incompatible_options_are_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert EDGE_CLIENT.run(["run", "--state-dir", str(tmp_path), *words]) == 2
    assert message in capfd.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
def test_without_flower_the_remedy_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert EDGE_CLIENT.run(["run", "--state-dir", str(tmp_path), "--flower", "app:app"]) == 2
    assert "pip install 'edge-federation[flower]'" in capfd.readouterr().err
