"""FedAvg: the weighted mean of the clients' models."""

import numpy as np
import pytest

from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update

FEDAVG = make_strategy(StrategySpec(), RATIOS)


def constant(value: float) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, value) for name, array in arrays(0).items()}


def moved(before, after) -> dict[str, np.ndarray]:
    return {name: after.params[name] - before.params[name] for name in before.params}


def test_the_model_moves_by_the_mean_weighted_by_examples():
    # (10 * 1 + 30 * 2 + 60 * 5) / 100 = 3.7
    sent = [update("a", constant(1), examples=10), update("b", constant(2), examples=30)]
    sent.append(update("c", constant(5), examples=60))
    before = state()
    for change in moved(before, close_round(FEDAVG, before, sent, MAP)).values():
        assert change == pytest.approx(np.full(change.shape, 3.7), abs=1e-5)


def test_the_weights_are_reported():
    sent = [update("a", constant(1), examples=10), update("b", constant(2), examples=30)]
    assert close_round(FEDAVG, state(), sent, MAP).observed == {"weights": {"a": 0.25, "b": 0.75}}


def test_a_client_without_examples_does_not_count():
    sent = [update("a", constant(1), examples=0), update("b", constant(2), examples=30)]
    before = state()
    assert moved(before, close_round(FEDAVG, before, sent, MAP))["out.bias"] == pytest.approx(
        [2, 2], abs=1e-6
    )


def test_clients_count_equally_when_none_has_examples():
    sent = [update("a", constant(1), examples=0), update("b", constant(2), examples=0)]
    before = state()
    assert moved(before, close_round(FEDAVG, before, sent, MAP))["out.bias"] == pytest.approx(
        [1.5, 1.5], abs=1e-6
    )


def test_a_single_clients_update_is_applied_unchanged():
    before, delta = state(), arrays(3)
    after = close_round(FEDAVG, before, [update("a", delta)], MAP)
    assert all(np.allclose(after.params[n], before.params[n] + delta[n]) for n in delta)


def test_a_spec_that_names_every_channel_is_the_full_model():
    full, listed = SubModelSpec(), SubModelSpec(kept={"hidden": (0, 1, 2, 3, 4)})
    results = [
        close_round(FEDAVG, state(), [update("a", arrays(1), spec=spec), update("b", arrays(2))], MAP)
        for spec in (full, listed, SubModelSpec(kept={"hidden": 5}))
    ]
    for other in results[1:]:
        assert all((other.params[n] == results[0].params[n]).all() for n in other.params)


def test_recovery_changes_nothing_when_every_client_holds_the_full_model():
    components = (Component(name="attention-matching"), Component(name="fill-with-global"))
    filled = make_strategy(StrategySpec(transforms=components), RATIOS)
    sent = [update("a", arrays(1), examples=3), update("b", arrays(2), examples=4)]
    plain, recovered = close_round(FEDAVG, state(), sent, MAP), close_round(filled, state(), sent, MAP)
    assert all((plain.params[n] == recovered.params[n]).all() for n in plain.params)


def test_the_server_learning_rate_scales_the_step():
    half = StrategySpec(server_optimizer=Component(name="sgd", options={"learning_rate": 0.5}))
    before = state()
    after = close_round(make_strategy(half, RATIOS), before, [update("a", constant(1))], MAP)
    assert moved(before, after)["out.bias"] == pytest.approx([0.5, 0.5], abs=1e-6)


def test_the_mean_is_the_same_for_many_clients_in_any_order():
    random = np.random.default_rng(0)
    sent = [update(f"c{k}", constant(float(random.normal())), examples=k) for k in range(200)]
    shuffled = [sent[index] for index in random.permutation(200)]
    one, other = close_round(FEDAVG, state(), sent, MAP), close_round(FEDAVG, state(), shuffled, MAP)
    assert all((one.params[n] == other.params[n]).all() for n in one.params)
