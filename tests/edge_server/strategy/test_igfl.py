"""The server side of IGFL's client optimizer, and server and devices together; numbers calculated by hand."""

import numpy as np
import pytest

from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.strategy import start_state
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, update
from tests.edge_server.strategy.test_scaffold import Pair

IGFL_C = StrategySpec(
    objectives=(Component(name="igfl"),),
    groups=(Component(name="last-step"),),
    weighting=Component(name="equal"),
)
MATCHED = (Component(name="attention-matching"), Component(name="fill-with-global"))


def bias(*values: float) -> dict[str, np.ndarray]:
    """An update that changes only hidden.bias [5]."""
    zeros = {name: np.zeros_like(array) for name, array in arrays(0).items()}
    return {**zeros, "hidden.bias": np.array(values, np.float32)}


def test_before_round_one_the_last_step_is_zero():
    strategy = make_strategy(IGFL_C, RATIOS)
    down = downlink_groups(strategy, start_state(strategy, arrays(0)), SubModelSpec(kept={"hidden": 2}), MAP)
    assert down["last-step"]["hidden.bias"].tolist() == [0, 0]
    assert not any(array.any() for array in down["last-step"].values())


def test_the_last_step_is_the_change_of_the_model_in_the_last_round_only():
    # Half of the mean of (2, ...) and (4, ...), then half of (8, ...).
    spec = IGFL_C.model_copy(
        update={"server_optimizer": Component(name="sgd", options={"learning_rate": 0.5})}
    )
    strategy = make_strategy(spec, RATIOS)
    state = start_state(strategy, {name: np.zeros_like(array) for name, array in arrays(0).items()})
    state = close_round(strategy, state, [update("a", bias(*[2] * 5)), update("b", bias(*[4] * 5))], MAP)
    assert state.groups["last-step"]["hidden.bias"].tolist() == [1.5] * 5
    state = close_round(strategy, state, [update("a", bias(*[8] * 5))], MAP)
    assert state.groups["last-step"]["hidden.bias"].tolist() == [4] * 5
    assert state.params["hidden.bias"].tolist() == [5.5] * 5


def test_two_rounds_of_server_and_devices_match_the_calculation():
    # |S| = 2, T = 5, rate 0.1: without last steps Delta_I + Delta_G = -0.15 g. From 1, steep (gradient 2 w)
    # ends at 0.7^5 = 0.16807, flat (w - 3) at 3 - 2 * 0.85^5 = 2.1125894; the mean is 1.1403297.
    pair = Pair(IGFL_C, 1.0)
    pair.rounds(1)
    assert pair.w == pytest.approx(1.1403297)
    assert pair.kept["steep"]["own-step"]["w"] == pytest.approx(-0.83193)
    assert pair.state.groups["last-step"]["w"] == pytest.approx(0.1403297)
    # Steep: each step w <- 0.7 w + (0.1403297 + 0.83193 / 2) / 5 = 0.7 w + 0.1112589, from 1.1403297;
    # its limit is 0.1112589 / 0.3 = 0.3708631, so it ends at 0.3708631 + 0.16807 * 0.7694666 = 0.5001874.
    # Flat: w <- 0.85 w + 0.45 + (0.1403297 - 1.1125894 / 2) / 5 = 0.85 w + 0.3668070; its limit is 2.4453800,
    # its end 2.4453800 - 0.4437053 * 1.3050503 = 1.8663223. The mean is 1.1832549.
    pair.rounds(1)
    assert pair.w == pytest.approx(1.1832549)


def fedavg(first: float) -> Pair:
    return Pair(StrategySpec(weighting=Component(name="equal")), first)


@pytest.mark.parametrize("query", ["igfl-self", "igfl-global", "igfl-time"])
def test_with_equations_4_and_5_instead_of_lines_4_and_6_it_is_fedavg(query):
    # Eq. 4 is the client without Delta_G; eq. 5 is the plain mean, which is attention with equal scores.
    igfl = Pair(
        IGFL_C.model_copy(
            update={
                "objectives": (Component(name="igfl", options={"strength": 0.0}),),
                "weighting": Component(name=query, options={"scale": 0.0}),
            }
        ),
        0.0,
    )
    plain = fedavg(0.0)
    for _ in range(4):
        igfl.rounds(1)
        plain.rounds(1)
        assert igfl.w == plain.w
    whole = Pair(IGFL_C, 0.0)
    whole.rounds(4)
    assert whole.w != plain.w
