"""Simulates a fleet, and measures what its devices export beside what each would have trained alone."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from edge_client.agent import device_training
from edge_client.agent.device_training import DeviceTraining, useful_offsets
from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of
from edge_client.pruning.update_coordinates import in_sub_model
from edge_server.config.load import load_config
from edge_server.simulation.simulator import simulate
from schemas.messages import DeliverTask
from schemas.tensors.arrays import Arrays, Groups, add_changes
from schemas.values import Personalisation
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import Quiet

SETTINGS = (
    "personalise-epochs=auto",
    "data.source=FashionMNIST",
    "samples-per-client=200",
    "simulation.hold-out=0.2",
    "deliver=force",
)


ASKED_ODDS = 10.0
MODELS = ("shared", "default", "asked", "alone")
Accuracies = tuple[float, float]
"""On test data: weighted as the device's own classes are, and on all classes alike."""


def play(
    data_root: Path, seed: int, devices: int, partition: str, words: Sequence[str]
) -> list[dict[str, Accuracies]]:
    """The accuracies of each device's `MODELS` after a simulated run of `attending`.

    By default a device exports the shared model with scores that know its classes' frequencies; if it is
    asked to, it trains that further and chooses, with odds of `ASKED_ODDS`.
    """
    test, ended = (
        load_source("FashionMNIST", data_root=data_root, split="test"),
        list[dict[str, Accuracies]](),
    )
    choose = device_training.personalise

    def observed(
        task: DeliverTask, training: DeviceTraining, received: Groups
    ) -> tuple[Arrays, Personalisation | None]:
        asked = task.model_copy(update={"class_odds": ASKED_ODDS})
        kept, found = choose(asked, training, received)
        shared, alone = received["model"], _alone(task, training, received, seed=seed, epochs=epochs)
        made = ((shared, None), (shared, task), (kept, asked), (alone, None))
        measured = [_measured(task, training, received, arrays, test, fitted=by) for arrays, by in made]
        ended.append(dict(zip(MODELS, measured, strict=True)))
        return kept, found

    fleet = (f"num-clients={devices}", f'data.partition="{partition}"', f"federation.seed={seed}")
    config = load_config("attending", [*SETTINGS, f"data-root={data_root}", *fleet, *words])
    epochs = (config.federation.last_round or 0) * config.training.local_epochs
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(device_training, "personalise", observed),
        in_process(),
    ):
        simulate(config, out=Path(folder) / "run", watcher=Quiet(), export=False)
    return ended


def _alone(
    task: DeliverTask, training: DeviceTraining, received: Groups, *, seed: int, epochs: int
) -> Arrays:
    """What the device's data give, from the run's first model, with the run's epochs."""
    tuning = task.as_training()
    assert tuning is not None
    whole = arrays_of(build_model(task.model, seed=seed))
    known = {name: array for name, array in whole.items() if name in training.channel_map.parameters}
    first = in_sub_model({"model": known}, task.spec, training.channel_map)["model"]
    plan = tuning.training.model_copy(update={"seed": seed, "objectives": (), "local_epochs": epochs})
    trained = training.own(
        tuning.model_copy(update={"training": plan}), {**received, "model": first}
    ).answer()
    return {name: np.asarray(array) for name, array in add_changes(first, trained.delta).items()}


def _measured(
    task: DeliverTask,
    training: DeviceTraining,
    received: Groups,
    arrays: Any,
    test: LabelledData,
    *,
    fitted: DeliverTask | None,
) -> Accuracies:
    """The accuracies of these arrays, exported as the task `fitted` asks for."""
    tuning, data = task.as_training(), training.data
    assert tuning is not None

    def outputs(inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        return training.outputs(tuning, {**received, "model": arrays}, inputs)

    offsets = (
        0.0 if fitted is None else useful_offsets(fitted, data, lambda compared: outputs(compared.inputs()))
    )
    called = (outputs(replace(test, preprocessing=data.train.preprocessing).inputs()) + offsets).argmax(1)
    classes = range(task.model.num_classes)
    recalls = np.array([(called[test.labels == number] == number).mean() for number in classes])
    own = np.bincount(np.concatenate([data.train.labels, data.held_out.labels]), minlength=len(classes))
    return float(recalls @ own / own.sum()), float(recalls.mean())
