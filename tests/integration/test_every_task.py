"""Every learning task over a real broker: trained with and without torch, exported, compared, inferred."""

import json
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.cli.main import main
from edge_client.data.local import LocalData
from edge_client.data.partition import Partition, holdout, share
from edge_client.data.sources import load_source
from edge_client.data.tasks.registry import TASKS
from edge_client.inference.onnx_model import load_model
from edge_server.cli.main import main as server
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.storage.records import RoundRecord
from schemas.values import CapabilityProfile
from tests.edge_client.data.tasks.examples import FEATURES, examples
from tests.integration.conftest import ONE_BROKER, Run
from tests.integration.device_threads import in_threads
from tests.slow import slow

TRAINERS = {"with-torch": ("torch",), "without-torch": ("onnx",)}
NETWORKS = {
    "anomaly": "tests.integration.test_every_task:autoencoder",
    "detection": "deploy.examples.own_detector:detector",
}
ATTENDING = "multi-label"
"""The task whose sub-models are cut by attention: the graph of such a step takes seconds to draw."""


def autoencoder(input_shape: tuple[int, ...], outputs: int):
    """A network that has room for what is usual only."""
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(FEATURES, 3), nn.Linear(3, outputs))


def count_of(task: str) -> int:
    """How many examples there are: pictures with boxes take longest."""
    return 80 if task == "detection" else 300


def written(path: Path, task: str, seed: int = 0) -> Path:
    """The examples of a task as a user would save them."""
    data = examples(task, count_of(task), seed)
    np.savez(path, images=data.images, labels=data.labels)
    return path


def agent(address, state: Path, name: str, source: str, index: int) -> Agent:
    state.mkdir(parents=True)
    settings = AgentSettings(
        *("test", name, address, state, source),
        CapabilityProfile(tier=1 + index, trainers=TRAINERS[name]),
        once=True,
        threads=1,
        model_code=frozenset(NETWORKS.values()),
    )
    mine = share(load_source(source), Partition("iid"), index=index, count=2, seed=0)
    return Agent(settings, LocalData(*holdout(mine, seed=0)))


EVALUATED = ("classification", "regression")
SLOW = ("classification", "forecasting", "multi-label", "detection", ATTENDING)
"""Those of which there is a like one, or a simulation: `tests/edge_server/simulation/test_detection.py`."""


def configured(task: str, settings: dict[str, object]) -> Config:
    plain = {"strategy.objectives": [], "strategy.groups": []}
    recipe, more = ("attending", {}) if task == ATTENDING else ("heterofl", plain)
    return load_config(recipe, [f"{key}={value}" for key, value in {**settings, **more}.items()])


def check_evaluation(address, tmp_path: Path, source: str, config: Config) -> None:
    """Devices measure the run's model on their own data, with and without torch."""
    run = Run(config, address, tmp_path / "evaluation")
    states = [tmp_path / "again" / name for name in TRAINERS]
    agents = [agent(address, state, state.name, source, index) for index, state in enumerate(states)]
    with in_threads(agents):
        try:
            summary = run.finished()
        finally:
            run.stop()
    assert summary.outcome == "finished", summary.detail
    record = RoundRecord.model_validate_json(run.folder.history.read_text().splitlines()[-1])
    assert set(record.measured) == set(TRAINERS)
    assert all(device.examples for device in record.measured.values())


def check_thresholds(devices: Path, answer: dict[str, list[dict[str, object]]]) -> None:
    """Each device's file has a threshold of its own, by which answers say what is unusual."""
    thresholds = [
        load_model(devices / name / "models" / "model.onnx").preprocessing.threshold for name in TRAINERS
    ]
    assert None not in thresholds
    assert len(set(thresholds)) == len(TRAINERS)
    assert 1 <= sum(result["unusual"] is True for result in answer["results"]) < 60


@ONE_BROKER
@pytest.mark.parametrize("task", [slow(task) if task in SLOW else task for task in TASKS])
def test_a_federation_of_every_task(
    address, serve, tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"npz:{written(tmp_path / 'data.npz', task)}"
    settings = {
        "federation.name": "test",
        "model.name": NETWORKS.get(task, "mlp"),
        "model.task": task,
        "data.source": source,
        "num-clients": 2,
        "tiers.ratios": "[0.5, 0.0]",
        "rounds": 4,
        "local-epochs": 12 if task == "detection" else 6,
        "learning-rate": 0.1,
        "batch-size": 16,
        "deadline-s": 60.0,
        "firewall.canary": 0.9,
    }
    run = serve(configured(task, settings))
    agents = [
        agent(address, tmp_path / "devices" / name, name, source, index)
        for index, name in enumerate(TRAINERS)
    ]
    with in_threads(agents):
        summary = run.finished()
    assert summary.outcome == "finished", summary.detail
    lines = run.folder.history.read_text().splitlines()
    first, last = (RoundRecord.model_validate_json(lines[place]) for place in (0, -1))
    metric = TASKS[task].leading(last.test_metrics)
    assert metric is TASKS[task].metrics[0]
    assert first.test_loss is not None
    assert last.test_loss is not None
    assert last.test_loss < first.test_loss
    assert task != "detection" or last.test_metrics["map50"] > 0.9
    assert set(last.client_metrics) >= {metric.name}
    assert last.tier_metrics.keys() == {1, 2}
    assert {device.device for device in summary.devices if device.metrics} == set(TRAINERS)
    served = tmp_path / "devices" / "without-torch" / "models" / "model.onnx"
    assert load_model(served).task is TASKS[task]
    fresh = written(tmp_path / "fresh.npz", task, seed=1)
    capsys.readouterr()
    assert main(["infer", str(served), str(fresh), "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert metric.name in answer["metrics"]
    assert len(answer["results"]) == count_of(task)
    if TASKS[task].usual is not None:
        check_thresholds(tmp_path / "devices", answer)
    if task in EVALUATED:
        measuring = {"federation.trains": "false", "rounds": 1, "federation.deliver": "none"}
        again = configured(task, {**settings, **measuring, "model.from": run.folder.path})
        check_evaluation(address, tmp_path, source, again)
    assert server(["report", str(run.folder.path)]) == 0
    assert f"Test {metric.name}" in (run.folder.path / "report.html").read_text()
