"""Channel observations of a closed round, computed by hand for five channels, and the observed rounds."""

from dataclasses import replace

import numpy as np
import pytest

from edge_server.coordinator import round_record
from edge_server.coordinator.round_record import is_observed, observation
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.explanations import ChannelScores
from edge_server.strategy.planning import tier_spec
from edge_server.strategy.pruning.pruners import Index, Magnitude
from edge_server.strategy.strategy import State
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, NETWORK, RATIOS, update
from tests.edge_server.strategy.test_attending import ATTENDING, SCORES, W, sent

GROUPS = ("hidden",)
UPDATES = [sent(client) for client in "abc"]
# Device c ranks its channels 4 3 2 1 0.
AFTER = close_round(ATTENDING, State(params=W), UPDATES, MAP)


def specs(strategy, state: State) -> dict[int, SubModelSpec]:
    return {tier: tier_spec(strategy, state, NETWORK, ratio) for tier, ratio in enumerate(RATIOS, start=1)}


def test_where_devices_rank_channels_each_rank_has_the_mean_score():
    seen = observation(AFTER, UPDATES, MAP, specs(ATTENDING, AFTER), GROUPS, ranked=True)
    # Sorted scores: a 0.9 0.8 0.5 0.3 0.1, b 0.9 0.7 0.5 0.2 0.1, c 0.5 0.4 0.3 0.2 0.1; their means:
    assert seen.groups["hidden"].scores == pytest.approx((2.3 / 3, 1.9 / 3, 1.3 / 3, 0.7 / 3, 0.1), rel=1e-4)
    assert seen.groups["hidden"].measure == "attention"
    # Tier 1 keeps the first 2 of 5 channels in that order, tier 2 the first 4, tier 3 all.
    assert seen.groups["hidden"].kept == {1: 2, 2: 4, 3: 5}
    assert (seen.round, seen.similarity) == (1, None)


def test_devices_without_scores_do_not_count_in_the_mean():
    silent = update("d", W)
    seen = observation(AFTER, [sent("c"), silent], MAP, {}, GROUPS, ranked=True)
    assert seen.groups["hidden"].scores == pytest.approx(sorted(SCORES["c"], reverse=True), rel=1e-4)


def test_in_unranked_rounds_a_channels_score_is_the_norm_of_its_weights():
    # Row i of the target layer is (10 i, 10 i), so its norm is 20 i.
    state = State(params=W, round=4)
    strategy = make_strategy(StrategySpec(pruner=Component(name="magnitude")), RATIOS)
    seen = observation(state, [], MAP, specs(strategy, state), GROUPS, ranked=False)
    # The largest are channels 3 and 4, then 1 to 4.
    assert seen.groups == {
        "hidden": ChannelScores(
            layers=("hidden",),
            measure="magnitude",
            scores=(0, 20, 40, 60, 80),
            kept={1: (3, 4), 2: (1, 2, 3, 4), 3: 5},
        )
    }
    assert isinstance(strategy.pruner, Magnitude)


def test_a_diverged_model_has_no_scores():
    state = State(params={**W, "hidden.weight": np.full((5, 2), np.inf, np.float32)})
    assert observation(state, [], MAP, {}, GROUPS, ranked=False).groups == {}


def test_the_observations_of_a_round_are_bounded(monkeypatch):
    state = State(params=W)
    strategy = make_strategy(StrategySpec(pruner=Component(name="magnitude")), RATIOS)
    # Five scores plus 2 + 4 listed channels.
    for most, shown in ((11, {"hidden"}), (10, set())):
        monkeypatch.setattr(round_record, "MAX_NUMBERS", most)
        seen = observation(state, [], MAP, specs(strategy, state), GROUPS, ranked=False)
        assert seen.groups.keys() == shown
    monkeypatch.setattr(round_record, "MAX_NUMBERS", 5)
    strategy = replace(strategy, pruner=Index())
    assert observation(state, [], MAP, specs(strategy, state), GROUPS, ranked=False).groups.keys() == {
        "hidden"
    }


@pytest.mark.parametrize(
    ("rounds", "step", "count"), [(1, 1, 1), (100, 1, 100), (101, 2, 52), (200, 2, 101), (1000, 16, 64)]
)
def test_about_a_hundred_of_many_rounds_are_observed(rounds, step, count):
    seen = [number for number in range(1, rounds + 1) if is_observed(number, rounds)]
    assert len(seen) == count
    assert (seen[0], seen[-1]) == (1, rounds)
    assert all(number % step == 0 for number in seen[1:-1])
