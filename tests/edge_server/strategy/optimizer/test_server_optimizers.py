"""How the global model follows the combined change, step by step; numbers calculated by hand."""

import numpy as np
import pytest

from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_component, make_strategy
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS, Adam, Momentum, Sgd
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update
from tests.groups import decode_groups, encode_groups


def model(*values: float) -> dict[str, np.ndarray]:
    return {"w": np.array(values, dtype=np.float32)}


def followed(optimizer, params, *changes):
    """The parameters after each combined change; a pseudo-gradient is minus a change."""
    memory, trail = {}, []
    for change in changes:
        params, memory = optimizer.step(memory, params, {name: -a for name, a in change.items()})
        trail.append(params["w"].tolist())
    return trail


def test_momentum_keeps_applying_earlier_changes():
    # v = 1, then 0.9 * 1 + 1 = 1.9, then 0.9 * 1.9 + 0 = 1.71; w = 10 + 1, + 1.9, + 1.71.
    # The other coordinate: v = -2, 0.9 * -2 + 2 = 0.2, 0.9 * 0.2 + 0 = 0.18; w = -2, -1.8, -1.62.
    trail = followed(Momentum(), model(10, 0), model(1, -2), model(1, 2), model(0, 0))
    assert np.allclose(trail, [[11, -2], [12.9, -1.8], [14.61, -1.62]])


def test_the_learning_rate_scales_the_applied_velocity_not_the_stored_one():
    # beta = 0.5: v = 4, then 0.5 * 4 + 2 = 4; with learning rate 0.25 each step is 1.
    assert followed(Momentum(0.25, 0.5), model(0), model(4), model(2)) == [[1], [2]]


def test_momentum_without_beta_is_sgd_exactly():
    params, changes = arrays(0), [arrays(seed) for seed in (1, 2, 3)]
    by_sgd, by_momentum, memory = params, params, {}
    for change in changes:
        gradient = {name: -array for name, array in change.items()}
        by_sgd, _ = Sgd(0.5).step({}, by_sgd, gradient)
        by_momentum, memory = Momentum(0.5, 0.0).step(memory, by_momentum, gradient)
    assert all((by_sgd[name] == by_momentum[name]).all() for name in params)


def test_adam_steps_by_the_mean_change_over_its_root_mean_square():
    # beta1 = beta2 = 0.5, tau = 1, learning rate 1; m starts at 0, v at tau^2 = 1.
    # Change sqrt(7): m = 0.5 * 2.645751 = 1.322876, v = 0.5 * 1 + 0.5 * 7 = 4; step 1.322876 / (2 + 1).
    # Change 0: m = 0.661438, v = 2; step 0.661438 / (1.414214 + 1).
    trail = followed(Adam(1.0, 0.5, 0.5, 1.0), model(0), model(7**0.5), model(0))
    assert np.allclose(trail, [[0.440959], [0.440959 + 0.273977]], atol=1e-6)


def test_adam_takes_the_first_step_without_bias_correction():
    # The paper's defaults, change 1: m = 0.1, v = 0.99e-6 + 0.01; 0.01 * 0.1 / (0.1000049 + 0.001).
    # With bias correction it would be 0.01 * 1 / (1 + 0.001): ten times as far.
    assert followed(Adam(), model(0), model(1))[0] == pytest.approx([0.00990051], rel=1e-5)


def test_adam_moves_large_and_small_coordinates_equally():
    # A change of 1000 and one of 1: 0.1 c / (0.1 c + 0.001), so nearly the same step.
    ((large, small),) = followed(Adam(), model(0, 0), model(1000, 1))
    assert small == pytest.approx(large, rel=0.02)


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_the_state_survives_the_codec(name):
    optimizer = make_component("server optimizer", SERVER_OPTIMIZERS, Component(name=name))
    params, memory = optimizer.step({}, arrays(0), arrays(1))
    again = decode_groups(encode_groups(memory))
    straight, _ = optimizer.step(memory, params, arrays(2))
    resumed, _ = optimizer.step(again, params, arrays(2))
    assert all((straight[n] == resumed[n]).all() for n in params)
    assert all(array.dtype == np.float32 for group in memory.values() for array in group.values())


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_a_step_does_not_modify_its_arguments(name):
    optimizer = make_component("server optimizer", SERVER_OPTIMIZERS, Component(name=name))
    _, memory = optimizer.step({}, arrays(0), arrays(1))
    before = {group: {n: a.copy() for n, a in inner.items()} for group, inner in memory.items()}
    optimizer.step(memory, arrays(0), arrays(2))
    assert all((memory[g][n] == before[g][n]).all() for g in memory for n in memory[g])


def test_the_velocity_is_carried_over_between_rounds():
    # Two rounds of the same change d: d, then 0.9 d + d: together 2.9 d.
    strategy = make_strategy(StrategySpec(server_optimizer=Component(name="momentum")), RATIOS)
    before, delta = state(), arrays(1)
    after = close_round(
        strategy, close_round(strategy, before, [update("a", delta)], MAP), [update("a", delta)], MAP
    )
    for name, array in delta.items():
        assert np.allclose(after.params[name], before.params[name] + 2.9 * array, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("momentum", {"beta": 1.0}, "beta must be at least 0 and below 1"),
        ("momentum", {"learning_rate": 0.0}, "learning-rate must be positive"),
        ("adam", {"beta1": -0.1}, "beta1 must be at least 0 and below 1"),
        ("adam", {"beta2": 1.5}, "beta2 must be at least 0 and below 1"),
        ("adam", {"adaptivity": 0.0}, "adaptivity must be positive"),
    ],
)
def test_an_option_out_of_range_is_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_component("server optimizer", SERVER_OPTIMIZERS, Component(name=name, options=options))
