"""Simulates a fleet, and measures what its devices export beside what each would have trained alone."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from edge_client.agent import personalisation
from edge_client.agent.device_training import DeviceTraining
from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of
from edge_client.pruning.update_coordinates import in_sub_model
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from schemas.messages import DeliverTask
from schemas.tensors.arrays import added
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import Personalisation
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet

SETTINGS = ("data.source=FashionMNIST", "samples-per-client=200", "simulation.hold-out=0.2", "deliver=force")
SETTINGS += ("learning-rate=0.01", "local-epochs=1", "rounds=10", "personalise-epochs=auto")


@dataclass(frozen=True)
class Ended:
    """Accuracies of one device's models on test data: weighted as its own classes are, and on all classes."""

    model: str
    shared: tuple[float, float]
    kept: tuple[float, float]
    alone: tuple[float, float]


def play(data_root: Path, seed: int, devices: int, partition: str, words: Sequence[str]) -> list[Ended]:
    """The devices of a simulated run of `attending`, with the file's defaults but for `words`."""
    test, ended = load_source("FashionMNIST", data_root=data_root, split="test"), list[Ended]()
    choose = personalisation.personalise

    def observed(
        task: DeliverTask, training: DeviceTraining, received: Groups
    ) -> tuple[Arrays, Personalisation | None]:
        kept, found = choose(task, training, received)
        models = {"shared": received["model"], "kept": kept, "alone": _alone(task, training, received, seed)}
        figures = {name: _measured(task, training, received, arrays, test) for name, arrays in models.items()}
        ended.append(Ended("shared" if found is None else found.model or "shared", **figures))
        return kept, found

    fleet = (f"num-clients={devices}", f'data.partition="{partition}"', f"federation.seed={seed}")
    config = load_config("attending", [*SETTINGS, f"data-root={data_root}", *fleet, *words])
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(personalisation, "personalise", observed),
        in_process(),
    ):
        simulate(config, out=Path(folder) / "run", watcher=Quiet(), export=False)
    return ended


def _alone(task: DeliverTask, training: DeviceTraining, received: Groups, seed: int) -> Arrays:
    """What the device's data give, from the run's first model, with the run's epochs."""
    tuning = task.as_training()
    assert tuning is not None
    assert task.alone is not None
    whole = arrays_of(build_model(task.model, seed=seed))
    known = {name: array for name, array in whole.items() if name in training.channel_map.parameters}
    first = in_sub_model({"model": known}, task.spec, training.channel_map)["model"]
    plan = task.alone.model_copy(update={"seed": seed})
    trained = training.own(tuning.model_copy(update={"training": plan}), {**received, "model": first})
    return {name: np.asarray(array) for name, array in added(first, trained.delta).items()}


def _measured(
    task: DeliverTask, training: DeviceTraining, received: Groups, arrays: Any, test: LabelledData
) -> tuple[float, float]:
    tuning, data = task.as_training(), training.data
    assert tuning is not None
    inputs = replace(test, preprocessing=data.train.preprocessing).inputs()
    called = training.outputs(tuning, {**received, "model": arrays}, inputs).argmax(1)
    classes = range(task.model.num_classes)
    recalls = np.array([(called[test.labels == number] == number).mean() for number in classes])
    own = np.bincount(np.concatenate([data.train.labels, data.held_out.labels]), minlength=len(classes))
    return float(recalls @ own / own.sum()), float(recalls.mean())
