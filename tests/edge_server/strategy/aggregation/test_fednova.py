"""FedNova: tau_eff, unequal numbers of steps, and when it equals FedAvg; numbers calculated by hand."""

from dataclasses import replace

import numpy as np
import pytest

from edge_server.config.load import load_config
from edge_server.strategy.aggregation.transforms import NormaliseSteps
from edge_server.strategy.aggregation.updates import ClientUpdate, TransformContext, to_global
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update

NOVA = StrategySpec(transforms=(Component(name="normalise-steps"),))
ZERO = {name: np.zeros_like(array) for name, array in arrays(0).items()}


def constant(value: float) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, value) for name, array in arrays(0).items()}


def stepped(client: str, delta, steps: int, examples: int = 10, **more) -> ClientUpdate:
    return replace(update(client, delta, examples=examples, **more), metrics={"steps": steps})


def model_after(*sent: ClientUpdate, spec: StrategySpec = NOVA) -> dict[str, np.ndarray]:
    return close_round(make_strategy(spec, RATIOS), state(), sent, MAP).params


def change(*sent: ClientUpdate) -> float:
    """The value of every parameter after a round that starts from zeros."""
    before = replace(state(), params=ZERO)
    values = np.concatenate(
        [
            array.ravel()
            for array in close_round(make_strategy(NOVA, RATIOS), before, sent, MAP).params.values()
        ]
    )
    assert np.ptp(values) == pytest.approx(0, abs=1e-6)
    return float(values[0])


# --- tau_eff ---
def test_tau_eff_is_the_mean_number_of_steps_weighted_by_examples():
    # p = 10/40, 30/40; tau = 2, 6: 0.25 * 2 + 0.75 * 6 = 5.
    sent = [stepped("a", ZERO, 2, examples=10), stepped("b", ZERO, 6, examples=30)]
    assert NormaliseSteps().effective_steps(sent) == 5


def test_with_momentum_a_gradient_counts_in_later_steps_too():
    # rho = 0.5: |a|_1 of 1 step is (1 - 0.5 * 0.5 / 0.5) / 0.5 = 1; of 2 steps (2 - 0.5 * 0.75 / 0.5) / 0.5
    # = 2.5: the first gradient counts 1 + 0.5, the second 1. Equal shares: tau_eff = 1.75.
    nova = NormaliseSteps(momentum=0.5)
    sent = [stepped("a", ZERO, 1), stepped("b", ZERO, 2)]
    assert [nova.mass(client_update) for client_update in sent] == pytest.approx([1, 2.5])
    assert nova.effective_steps(sent) == pytest.approx(1.75)


def test_clients_count_equally_when_none_has_examples():
    sent = [stepped("a", ZERO, 2, examples=0), stepped("b", ZERO, 6, examples=0)]
    assert NormaliseSteps().effective_steps(sent) == 4


# --- a round ---
def test_the_model_moves_by_tau_eff_times_the_mean_of_steps():
    # d = 8/2 = 4 and 6/6 = 1; tau_eff = 5 as above; 5 * (0.25 * 4 + 0.75 * 1) = 8.75. FedAvg: 6.5.
    assert change(
        stepped("a", constant(8), 2, examples=10), stepped("b", constant(6), 6, examples=30)
    ) == pytest.approx(8.75)


def test_equal_numbers_of_steps_give_exactly_fedavg():
    sent = [stepped(f"c{k}", arrays(k + 1), 7, examples=3 * k + 1) for k in range(5)]
    nova, plain = model_after(*sent), model_after(*sent, spec=StrategySpec())
    assert all((nova[name] == plain[name]).all() for name in plain)


def test_different_sub_models_are_normalised_over_their_holders():
    # d = 2 (whole, 2 steps) and 1 (a prefix of 2 channels, 4 steps), equal shares: tau_eff = 3. Where both
    # hold: 3 * (2 + 1) / 2 = 4.5; where only the first does: 3 * 2 = 6.
    small = SubModelSpec(kept={"hidden": 2})
    before = replace(state(), params=ZERO)
    sent = [stepped("a", constant(4), 2), stepped("b", constant(4), 4, spec=small)]
    after = close_round(make_strategy(NOVA, RATIOS), before, sent, MAP).params["hidden.bias"]
    np.testing.assert_allclose(after, [4.5, 4.5, 6, 6, 6])


def test_an_update_without_steps_is_unchanged_and_not_part_of_tau_eff():
    # tau_eff = 4 from the other client only, whose update stays 6: (6 + 2) / 2.
    idle = stepped("b", constant(2), 0)
    assert NormaliseSteps().effective_steps([stepped("a", ZERO, 4), idle]) == 4
    assert change(stepped("a", constant(6), 4), idle) == pytest.approx(4)


def test_running_statistics_are_not_scaled():
    sent = [stepped("a", ZERO, 1), stepped("b", ZERO, 3)]
    global_update = to_global(sent[0], MAP)
    ones = {"norm.weight": np.ones(2, np.float32), "norm.running_var": np.ones(2, np.float32)}
    # tau_eff = 2, over 1 step.
    layouts = {name: ParameterLayout(shape=(2,)) for name in ones}
    context = TransformContext(ZERO, ChannelMap(groups={}, parameters=layouts), sent)
    scaled = NormaliseSteps()(replace(global_update, delta=ones), context).delta
    assert scaled["norm.weight"].tolist() == [2, 2]
    assert scaled["norm.running_var"].tolist() == [1, 1]


@pytest.mark.parametrize("momentum", [-0.1, 1.0])
def test_an_impossible_momentum_is_refused(momentum):
    component = Component(name="normalise-steps", options={"momentum": momentum})
    with pytest.raises(ConfigError, match="momentum must be at least 0 and below 1"):
        make_strategy(StrategySpec(transforms=(component,)), RATIOS)


def test_the_recipe_is_fedavg_with_normalised_steps():
    recipe = load_config("fednova")
    assert recipe.strategy.transforms == NOVA.transforms
    assert recipe.strategy.model_copy(update={"transforms": ()}) == load_config("fedavg").strategy
