"""Learning without Forgetting: the received network's answers are kept while the device trains."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.training.evaluation import logits
from edge_client.training.loop import train
from edge_client.training.objectives.base import Batch, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from schemas.errors import ConfigError
from schemas.strategy import Component, TrainingPlan
from schemas.values import ModelSpec


def distil(weight: float) -> Component:
    return Component(name="distil", options={"weight": weight})


def test_the_divergence_from_the_received_answers_is_added() -> None:
    """Received answers are (1/2, 1/2). After a shift of ln 3 they are (3/4, 1/4):
    KL = ln(1/2 / (3/4)) / 2 + ln(1/2 / (1/4)) / 2 = (ln(2/3) + ln 2) / 2 = ln(4/3) / 2.
    """
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.zero_(), layer.bias.zero_()
    (objective,) = build_objectives([distil(2.0)])
    objective.setup(layer, TrainingContext(TrainingPlan()))
    with torch.no_grad():
        layer.bias[0] = np.log(3)
    inputs = torch.zeros(4, 1)
    batch = Batch(layer, inputs, torch.zeros(4, dtype=torch.int64), layer(inputs))
    assert objective.loss(batch, torch.tensor(1.0)).item() == pytest.approx(1 + np.log(4 / 3))


def test_a_trained_model_forgets_less() -> None:
    digits = load_source("digits")
    few = digits.subset(np.flatnonzero(digits.labels < 2)[:60])
    spec = ModelSpec(name="mlp", input_shape=few.images.shape[1:], num_classes=10)
    kept = []
    for objectives in ((), (distil(3.0),)):
        module = build_model(spec)
        train(module, digits.subset(range(300)), TrainingPlan(learning_rate=0.1, local_epochs=10))
        train(module, few, TrainingPlan(learning_rate=0.1, local_epochs=10, objectives=objectives))
        kept.append(float((logits(module, digits.inputs()).argmax(1) == digits.labels).mean()))
    assert kept[1] > kept[0] + 0.02


def test_a_weight_is_a_number_of_at_least_0() -> None:
    with pytest.raises(ConfigError, match="'distil': weight must be a number of at least 0"):
        build_objectives([distil(-1.0)])
