"""How many devices a round asks, and what a tier's table of ratios stands for."""

import numpy as np
import pytest

from edge_server.strategy.build import make_strategy
from edge_server.strategy.strategy import plan
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from tests.edge_server.strategy.network import CLIENTS, NETWORK, RATIOS, state


def half() -> StrategySpec:
    return StrategySpec(fraction=Component(name="constant", options={"value": 0.5}))


def planned(spec: StrategySpec | None = None, ratios=RATIOS, **options):
    strategy = make_strategy(spec or StrategySpec(), ratios)
    return plan(strategy, state(), CLIENTS, NETWORK, np.random.default_rng(0), **options)


@pytest.mark.parametrize(("factor", "asked"), [(1.0, 3), (1.3, 4), (1.5, 5), (9.0, 6)])
def test_more_are_asked_than_the_round_needs(factor, asked):
    # Half of 6 devices are 3; ceil(3 * 1.3) = 4, ceil(4.5) = 5, and there are no more than 6.
    one = planned(half(), over_select=factor)
    assert (len(one.assignments), one.needed) == (asked, 3)


def test_whoever_asks_for_a_number_gets_it_whatever_the_fraction():
    assert len(planned(half(), wanted=1).assignments) == 1
    assert len(planned(half(), wanted=50).assignments) == 6


def test_a_tier_may_have_a_ratio_per_layer_and_is_told_its_mean():
    # The network's one group is 'hidden' (5 channels): 0.6 takes 3 of them. (0.6 + 0.2) / 2 = 0.4.
    one = planned(ratios=({"hidden": 0.6, "hid*": 0.2}, 0.2, 0.0)).assignments["c0"]
    assert one.cut.spec.count("hidden", 5) == 2
    assert one.ratio == pytest.approx(0.4)


def test_a_layer_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no channels to prune match 'hiden'.*did you mean 'hidden'"):
        planned(ratios=({"hiden": 0.5}, 0.2, 0.0))
