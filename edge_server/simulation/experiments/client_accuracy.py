"""Each client's accuracy: its own tier's final model, on test examples in the client's mix of classes.

A client's accuracy is the mean of its tier's accuracies per class on the server's test data, weighted by the
classes of the client's training examples. Nothing is held out for it, so runs stay as they are.
"""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.data.shapes import fit_data
from edge_client.data.tasks.registry import learning_task
from edge_client.storage.atomic_files import write_synced
from edge_client.training.evaluation import logits
from edge_server.config.config import Config
from edge_server.config.test_data import load_test_data, model_spec
from edge_server.observability.dashboard.grad_cam_process import tier_model
from edge_server.simulation.inputs import as_simulated, training_data
from edge_server.simulation.population import make_population
from edge_server.strategy.aggregation.updates import is_statistic
from schemas.tensors.blobs import FileGroups

FILE = "client-accuracies.json"
Floats = NDArray[np.float64]


def client_accuracies(config: Config, folder: Path) -> dict[str, float]:
    """The accuracy of every client of an ended run, 0 to 1, by name; kept in the run folder.

    {} for a run without models, for tasks without classes, and for a run whose tiers have normalisation of
    their own, which the global model in the run folder lacks.
    """
    if not learning_task(config.model.task).exclusive:
        return {}
    kept = folder / FILE
    if kept.exists():
        return dict(json.loads(kept.read_text()))
    versions = sorted((folder / "models").glob("round-*"), key=lambda path: int(path.name.split("-")[1]))
    if not versions or _has_own_normalisation(config, versions[-1]):
        return {}
    config = as_simulated(config)
    (labels, origins), test = _labels(_data_key(config)), _test_data(_data_key(config))
    devices = make_population(config, labels, origins)
    by_tier = {
        tier: class_accuracies(logits(tier_model(config, test, versions[-1], tier), test.inputs()), test)
        for tier in {device.tier for device in devices}
    }
    result = {
        device.name: of_mix(
            by_tier[device.tier], np.bincount(labels[device.train], minlength=test.num_classes)
        )
        for device in devices
        if len(device.train)
    }
    write_synced(kept, json.dumps(result).encode())
    return result


def _has_own_normalisation(config: Config, version: Path) -> bool:
    rules = config.make_strategy().groups
    names = FileGroups(version / "state.safetensors")["model"]
    return any(rule.owns or rule.measured for rule in rules) and any(map(is_statistic, names))


def class_accuracies(outputs: NDArray[np.float32], data: LabelledData) -> Floats:
    """The share of right answers among each class's examples [classes]; not a number for absent classes."""
    right = outputs.argmax(axis=1) == data.labels
    counts = np.bincount(data.labels, minlength=data.num_classes)
    with np.errstate(invalid="ignore"):
        shares: Floats = np.bincount(data.labels, weights=right, minlength=data.num_classes) / counts
    return shares


def of_mix(accuracies: Floats, counts: NDArray[np.int64]) -> float:
    """The mean of the classes' accuracies, weighted by `counts`, without untested classes."""
    known = ~np.isnan(accuracies) & (counts > 0)
    return float(np.average(accuracies[known], weights=counts[known])) if known.any() else float("nan")


def _data_key(config: Config) -> str:
    """What decides which data a run has, as the JSON of a configuration."""
    return config.model_dump_json(include={"data", "model", "recipe"}, by_alias=True, exclude_none=True)


@lru_cache(maxsize=4)
def _labels(key: str) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    data = training_data(Config.model_validate_json(key))
    return data.labels, data.origins


@lru_cache(maxsize=4)
def _test_data(key: str) -> LabelledData:
    config = Config.model_validate_json(key)
    data = load_test_data(config)
    assert data is not None
    return fit_data(data, model_spec(config, data).input_shape)
