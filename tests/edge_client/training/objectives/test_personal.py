"""Hermes on the device: initial values and kept values."""

import numpy as np
import torch
from torch import nn

from edge_client.pruning.surgery import arrays_of, load_arrays
from edge_client.pruning.update_coordinates import in_global, in_sub_model
from edge_client.training.objectives.base import LocalObjective, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups
from tests.edge_server.strategy.network import MAP

RECEIVED = {"weight": np.array([[1, 2], [3, 4]], np.float32), "bias": np.array([5, 6], np.float32)}
OWN = {name: 10 * array for name, array in RECEIVED.items()}
HELD = {"weight": np.array([[True, True], [False, False]]), "bias": np.array([True, False])}
KEPT = {"personal": OWN, "personal-held": HELD}
SHARED = {"weight": np.array([[True, False], [True, False]]), "bias": np.array([False, False])}


def set_up(received: Groups, kept: Groups) -> tuple[nn.Linear, LocalObjective]:
    module = nn.Linear(2, 2)
    load_arrays(module, RECEIVED)
    (objective,) = build_objectives((Component(name="personal"),))
    objective.setup(module, TrainingContext(TrainingPlan(), received=received, kept=kept))
    return module, objective


def test_a_device_starts_from_received_values_in_the_overlap_and_own_values_outside() -> None:
    module, _ = set_up({"overlap": SHARED}, KEPT)
    # Weights: 1 is shared; 2 is not shared but was held, so 20; the second row was never held.
    # Bias: 5 was held, so 50.
    assert module.weight.tolist() == [[1, 20], [3, 4]]
    assert module.bias.tolist() == [50, 6]


def test_a_new_device_starts_from_the_received_model() -> None:
    module, _ = set_up({"overlap": SHARED}, {})
    assert module.weight.tolist() == [[1, 2], [3, 4]]


def test_without_an_overlap_every_device_starts_from_the_received_model() -> None:
    module, _ = set_up({}, KEPT)
    assert module.bias.tolist() == [5, 6]


def test_a_device_keeps_its_trained_values_and_sends_nothing() -> None:
    module, objective = set_up({"overlap": SHARED}, KEPT)
    with torch.no_grad():
        module.bias.add_(1)
    kept = objective.keep()
    assert kept["personal"]["bias"].tolist() == [51, 7]
    assert kept["personal"]["weight"].tolist() == [[1, 20], [3, 4]]
    assert kept["personal-held"]["weight"].tolist() == [[True, True], [True, True]]
    assert objective.finish() == {}
    objective.close()
    assert objective.keep() == {}


def test_a_channel_new_to_the_sub_model_starts_from_the_received_value() -> None:
    # Channels 0 and 2 in the first round, 1 and 2 in the second; only the bias of `out` is shared.
    network = nn.ModuleDict({"hidden": nn.Linear(2, 2), "out": nn.Linear(2, 2)})
    (objective,) = build_objectives((Component(name="personal"),))
    first, second = SubModelSpec(kept={"hidden": (0, 2)}), SubModelSpec(kept={"hidden": (1, 2)})
    objective.setup(network, TrainingContext(TrainingPlan()))
    load_arrays(network, {name: np.full_like(a, 7) for name, a in arrays_of(network).items()})
    kept = in_sub_model(in_global(objective.keep(), {}, first, MAP), second, MAP)
    load_arrays(network, {name: np.full_like(a, 1) for name, a in arrays_of(network).items()})
    shared = {n: np.full(a.shape, n == "out.bias") for n, a in arrays_of(network).items()}
    objective.setup(network, TrainingContext(TrainingPlan(), received={"overlap": shared}, kept=kept))
    after = arrays_of(network)
    assert after["hidden.bias"].tolist() == [1, 7]
    assert after["out.weight"].tolist() == [[1, 7], [1, 7]]
    assert after["out.bias"].tolist() == [1, 1]
