"""A normalisation's running statistics are only ever averaged: momentum would take a variance below 0."""

import numpy as np
import pytest

from edge_server.strategy.optimizer.optimizers import Adam, Momentum


@pytest.mark.parametrize("optimizer", [Momentum(), Adam()])
def test_statistics_follow_their_mean_whatever_the_optimizer(optimizer):
    params = {"norm.running_var": np.array([1.0], np.float32), "norm.weight": np.array([1.0], np.float32)}
    state = {}
    for target in (0.5, 0.05, 0.05):
        # The combined change goes to the target: the pseudo-gradient is minus that.
        gradient = {name: array - np.float32(target) for name, array in params.items()}
        params, state = optimizer.step(state, params, gradient)
        assert params["norm.running_var"].tolist() == pytest.approx([target])
    assert params["norm.weight"].tolist() != pytest.approx([0.05])
    assert all("norm.running_var" not in arrays for arrays in state.values())
