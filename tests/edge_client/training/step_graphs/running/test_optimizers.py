"""Optimizers in numpy take torch's steps."""

from typing import Any

import numpy as np
import pytest
import torch

from edge_client.training import optimizers as of_torch
from edge_client.training.step_graphs.running.optimizers import BLOCK, OPTIMIZERS
from schemas.strategy import TrainingPlan

CASES: list[dict[str, Any]] = [
    {"optimizer": "sgd"},
    {"optimizer": "sgd", "momentum": 0.9},
    {"optimizer": "sgd", "momentum": 0.5, "weight_decay": 0.01},
    {"optimizer": "adam", "learning_rate": 0.001},
    {"optimizer": "adam", "learning_rate": 0.001, "weight_decay": 0.01},
    {"optimizer": "adamw", "learning_rate": 0.001, "weight_decay": 0.01},
]


def test_both_have_the_same_optimizers() -> None:
    assert OPTIMIZERS.keys() == of_torch.OPTIMIZERS.keys()


@pytest.mark.parametrize("words", CASES, ids=lambda words: " ".join(map(str, words.values())))
def test_twenty_steps_are_torchs(words: dict[str, Any]) -> None:
    plan, random = TrainingPlan(**{"learning_rate": 0.1, **words}), np.random.default_rng(0)
    # The first array takes two blocks. Small weights leave the steps' own rounding visible.
    start = {"a": 1e-3 * random.standard_normal((5, BLOCK // 4)), "b": 1e-3 * random.standard_normal(7)}
    weights = {name: array.astype(np.float32) for name, array in start.items()}
    parameters = [torch.nn.Parameter(torch.from_numpy(array.copy())) for array in weights.values()]
    ours, theirs = OPTIMIZERS[plan.optimizer](plan), of_torch.OPTIMIZERS[plan.optimizer](parameters, plan)
    for _ in range(20):
        gradients = {
            name: random.standard_normal(array.shape).astype(np.float32) for name, array in weights.items()
        }
        for parameter, gradient in zip(parameters, gradients.values(), strict=True):
            parameter.grad = torch.from_numpy(gradient.copy())
        ours.step(weights, gradients)
        theirs.step()
    for array, parameter in zip(weights.values(), parameters, strict=True):
        expected = parameter.detach().numpy()
        assert np.linalg.norm(array - expected) <= 1e-6 * np.linalg.norm(expected)
