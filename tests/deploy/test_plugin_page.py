"""The package of the page on plugins: its own task, loss, metric and weighting, in a federation."""

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from onnxruntime import InferenceSession
from torch import nn

from edge_client.data.dataset import make_labelled_data
from edge_client.data.tasks.labels import in_task
from edge_client.data.tasks.learning_task import Answers
from edge_client.data.tasks.registry import learning_task, losses_of
from edge_client.system import plugins
from edge_client.system.plugins import group_of
from edge_client.training.evaluation import loss_of
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.step import draw_step
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from edge_server.storage.run_files import read_run_files
from edge_server.strategy.components import make_component
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.errors import ConfigError
from schemas.strategy import Component
from tests.deploy.pages import DOCS, write_files
from tests.deploy.test_tutorial import Unwatched
from tests.edge_server.simulation.in_process import in_process

PAGE = DOCS / "guides" / "compare" / "plugins.md"
MODULES = ("faults", "faults_torch")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on Python's path in which the page's package is installed."""
    write_files(PAGE, tmp_path)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    points = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in found.items())
        for group, found in project["entry-points"].items()
    ]
    info = tmp_path / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    plugins.plugins.cache_clear()
    yield tmp_path
    plugins.plugins.cache_clear()
    for name in MODULES:
        sys.modules.pop(name, None)


def test_packaging_tools_take_the_pages_groups(folder: Path) -> None:
    stated = re.findall(r"edge_federation\.[\w.-]+|(?<=`)\.[a-z][a-z_-]+(?=`)", PAGE.read_text())
    # packaging.python.org, entry points specification: letters, digits and underscores, separated by dots.
    assert [name for name in stated if not re.fullmatch(r"[.]?\w+(\.\w+)*", name)] == []
    assert {group_of("torch-loss"), group_of("data-source"), ".server_optimizer"} <= set(stated)


def test_the_loss_in_torch_is_the_mean_of_the_one_in_numpy(folder: Path) -> None:
    outputs, labels = np.random.default_rng(0).normal(size=(9, 2)), np.arange(9) % 2
    each = losses_of(learning_task("faults"))(outputs, labels)
    assert float(loss_of("faults")(torch.from_numpy(outputs), torch.from_numpy(labels))) == pytest.approx(
        each.mean()
    )
    # Two equal outputs: log 2, and five times as much where a fault is.
    even = losses_of(learning_task("faults"))(np.zeros((2, 2)), np.array([0, 1]))
    assert even == pytest.approx([np.log(2), 5 * np.log(2)])


def test_the_metric_leads_and_the_smaller_is_better(folder: Path) -> None:
    task = learning_task("faults")
    # One missed fault (5) and one false alarm (1) among four answers.
    outputs, labels = np.eye(2)[[0, 1, 0, 1]], np.array([1, 0, 0, 1])
    found = task.measure_answers(Answers(outputs, labels, labels))
    assert next(iter(found.items())) == ("cost", 1.5)
    assert task.leading(found).worsening(1.5, 3.0) == 1.0


def test_a_device_without_torch_gets_the_loss_in_its_graph(folder: Path) -> None:
    graph = draw_step(nn.Linear(3, 2), (3,), task=learning_task("faults"))
    session = InferenceSession(graph, providers=["CPUExecutionProvider"])
    inputs, labels = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), np.arange(5) % 2
    weights = {"weight": np.eye(2, 3, dtype=np.float32), "bias": np.zeros(2, np.float32)}
    (loss,) = session.run([names.LOSS], {names.INPUTS: inputs, names.LABELS: labels, **weights})
    expected = losses_of(learning_task("faults"))(inputs[:, :2], labels).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_weights_are_by_the_root_of_the_number_of_examples(folder: Path) -> None:
    updates = [SimpleNamespace(source=SimpleNamespace(examples=count)) for count in (1, 4, 9)]
    weighting = make_component("weighting", WEIGHTINGS, Component(name="square-root"))
    # 1, 2 and 3 of 6.
    assert weighting.weigh(None, updates) == pytest.approx([1 / 6, 2 / 6, 3 / 6])


@in_process()
def test_a_federation_uses_task_and_weighting(folder: Path) -> None:
    rng, labels = np.random.default_rng(0), np.arange(200) % 2
    np.savez("data.npz", images=rng.normal(size=(200, 6)).astype(np.float32) + labels[:, None], labels=labels)
    words = ["data.source=npz:data.npz", "num-clients=2", "rounds=1", "workers=1", "tiers.ratios=[0.5,0.0]"]
    config = load_config("federation.toml", [*words, "simulation.hold-out=0.2"])
    assert simulate(config, out=folder / "run", watcher=Unwatched(), export=False).outcome == "finished"
    last = read_run_files(folder / "run").history[-1]
    assert next(iter(last.test_metrics)) == next(iter(last.client_metrics)) == "cost"
    assert "| cost |" in (folder / "run" / "report.md").read_text()
    assert 'weighting = "square-root"' in (folder / "run" / "federation.toml").read_text()


def test_a_task_without_its_loss_is_refused_with_the_group(folder: Path) -> None:
    (folder / "faults-1.0.dist-info" / "entry_points.txt").write_text(
        "[edge_federation.task]\nfaults = faults:FAULTS\n"
    )
    plugins.plugins.cache_clear()
    with pytest.raises(ConfigError, match=r"task 'faults': nothing named 'costly' is in .*\.loss"):
        losses_of(learning_task("faults"))
    with pytest.raises(ConfigError, match=r"nothing named 'costly' is in .*\.torch_loss"):
        loss_of("faults")


def test_labels_of_the_task_are_those_of_the_one_that_it_is_made_from(folder: Path) -> None:
    data = make_labelled_data(
        np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1]), class_names=("fine", "fault")
    )
    assert in_task(data, "faults", ("fine", "fault")).learning_task is import_module("faults").FAULTS
