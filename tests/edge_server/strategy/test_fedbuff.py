"""FedBuff: the weight of late updates; numbers calculated by hand."""

from dataclasses import replace

import numpy as np
import pytest

from edge_server.config.load import load_config
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update

ZERO = {name: np.zeros_like(array) for name, array in arrays(0).items()}


def late(client: str, value: float, staleness: int | None):
    delta = {name: np.full_like(array, value) for name, array in ZERO.items()}
    known = {} if staleness is None else {"staleness": staleness}
    return replace(update(client, delta, examples=ord(client)), metrics=known)


def change(*sent, **options) -> float:
    component = Component(name="discount-staleness", options=options)
    spec = StrategySpec(transforms=(component,), weighting=Component(name="equal"))
    after = close_round(make_strategy(spec, RATIOS), replace(state(), params=ZERO), sent, MAP).params
    return float(after["out.bias"][0])


def test_a_late_update_is_discounted_by_the_root_of_its_staleness():
    # Staleness 0, 3 and 8: discounts 1, 1/2 and 1/3; (1 * 6 + 4 / 2 + 3 / 3) / 3 = 3.
    assert change(late("a", 6, 0), late("b", 4, 3), late("c", 3, 8)) == pytest.approx(3)


def test_a_buffer_of_late_updates_takes_a_smaller_step():
    # Divided by the number in the buffer, not by the sum of discounts: 6 / 2, not 6.
    assert change(late("a", 6, 3), late("b", 6, 3)) == pytest.approx(3)


def test_the_exponent_controls_the_discount():
    # (1 + 3) ** -1 = 1/4; 0 changes nothing.
    assert change(late("a", 8, 3), exponent=1.0) == pytest.approx(2)
    assert change(late("a", 8, 3), exponent=0.0) == 8


def test_updates_that_are_not_late_are_not_discounted():
    assert change(late("a", 2, 0), late("b", 4, None)) == 3


def test_a_negative_exponent_is_refused():
    with pytest.raises(ConfigError, match="exponent must be at least 0"):
        change(late("a", 1, 0), exponent=-0.5)


@pytest.mark.parametrize("recipe", ["fedbuff", "attending-fedbuff"])
def test_the_recipes_close_rounds_by_the_buffer(recipe):
    config = load_config(recipe)
    assert config.clients.mode == "buffered"
    assert config.clients.buffer_size <= config.clients.num_clients
    assert config.strategy.transforms[0] == Component(name="discount-staleness", options={"exponent": 0.5})
    assert config.strategy.weighting == Component(name="equal")


def test_attending_fedbuff_is_attending_plus_the_buffer():
    buffered, plain = load_config("attending-fedbuff").strategy, load_config("attending").strategy
    assert buffered.pruner == plain.pruner
    assert buffered.transforms[1:] == plain.transforms
