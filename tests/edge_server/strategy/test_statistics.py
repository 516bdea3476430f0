"""Running statistics of normalisation layers are only averaged: momentum could make a variance negative."""

import numpy as np
import pytest

from edge_server.strategy.optimizer.optimizers import Adam, Momentum


@pytest.mark.parametrize("optimizer", [Momentum(), Adam()])
def test_running_statistics_become_the_mean_under_every_optimizer(optimizer):
    params = {"norm.running_var": np.array([1.0], np.float32), "norm.weight": np.array([1.0], np.float32)}
    state = {}
    for target in (0.5, 0.05, 0.05):
        # The combined change leads to the target; the pseudo-gradient is its negative.
        gradient = {name: array - np.float32(target) for name, array in params.items()}
        params, state = optimizer.step(state, params, gradient)
        assert params["norm.running_var"].tolist() == pytest.approx([target])
    assert params["norm.weight"].tolist() != pytest.approx([0.05])
    assert all("norm.running_var" not in arrays for arrays in state.values())
