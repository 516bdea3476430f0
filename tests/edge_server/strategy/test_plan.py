"""How many devices a round selects, and what a tier's table of ratios per layer means."""

import numpy as np
import pytest

from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import plan
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from tests.edge_server.strategy.network import CLIENTS, NETWORK, RATIOS, state


def half() -> StrategySpec:
    return StrategySpec(fraction=Component(name="constant", options={"value": 0.5}))


def planned(spec: StrategySpec | None = None, ratios=RATIOS, **options):
    strategy = make_strategy(spec or StrategySpec(), ratios)
    return plan(strategy, state(), CLIENTS, NETWORK, np.random.default_rng(0), **options)


@pytest.mark.parametrize(("factor", "selected"), [(1.0, 3), (1.3, 4), (1.5, 5), (9.0, 6)])
def test_over_selection_selects_more_devices_than_the_round_needs(factor, selected):
    # Half of 6 devices are 3; ceil(3 * 1.3) = 4, ceil(4.5) = 5, and 6 is the maximum.
    round_plan = planned(half(), over_select=factor)
    assert (len(round_plan.assignments), round_plan.needed) == (selected, 3)


def test_an_explicit_number_of_devices_overrides_the_fraction():
    assert len(planned(half(), wanted=1).assignments) == 1
    assert len(planned(half(), wanted=50).assignments) == 6


def test_a_tier_may_have_a_ratio_per_layer_and_reports_their_mean():
    # The network's one group is 'hidden' (5 channels): 0.6 removes 3 of them. (0.6 + 0.2) / 2 = 0.4.
    assignment = planned(ratios=({"hidden": 0.6, "hid*": 0.2}, 0.2, 0.0)).assignments["c0"]
    assert assignment.cut.spec.count("hidden", 5) == 2
    assert assignment.ratio == pytest.approx(0.4)


def test_an_unknown_layer_is_reported_with_the_most_similar_name():
    with pytest.raises(ConfigError, match=r"no channels to prune match 'hiden'.*did you mean 'hidden'"):
        planned(ratios=({"hiden": 0.5}, 0.2, 0.0))
