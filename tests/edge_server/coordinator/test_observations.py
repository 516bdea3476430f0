"""What a closed round shows of channels, worked by hand on five of them, and of how many rounds."""

from dataclasses import replace

import numpy as np
import pytest

from edge_server.coordinator import observations
from edge_server.coordinator.observations import is_observed, observation
from edge_server.strategy.build import make_strategy
from edge_server.strategy.explanations import ChannelScores
from edge_server.strategy.pruning.pruners import Index, Magnitude
from edge_server.strategy.strategy import State, close, tier_spec
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, NETWORK, RATIOS, update
from tests.edge_server.strategy.test_attending import ATTENDING, SCORES, W, sent

GROUPS = ("hidden",)
UPDATES = [sent(client) for client in "abc"]
# c: ranked 4 3 2 1 0.
AFTER = close(ATTENDING, State(params=W), UPDATES, MAP)


def specs(strategy, state: State) -> dict[int, SubModelSpec]:
    return {tier: tier_spec(strategy, state, NETWORK, ratio) for tier, ratio in enumerate(RATIOS, start=1)}


def test_where_devices_rank_channels_a_place_has_the_mean_of_what_came_to_it():
    seen = observation(AFTER, UPDATES, MAP, specs(ATTENDING, AFTER), GROUPS, ranked=True)
    # Sorted scores: a 0.9 0.8 0.5 0.3 0.1, b 0.9 0.7 0.5 0.2 0.1, c 0.5 0.4 0.3 0.2 0.1; their means:
    assert seen.groups["hidden"].scores == pytest.approx((2.3 / 3, 1.9 / 3, 1.3 / 3, 0.7 / 3, 0.1), rel=1e-4)
    assert seen.groups["hidden"].measure == "attention"
    # Tier 1 keeps 2 of 5, tier 2 keeps 4, tier 3 all, always the leading ones of that order.
    assert seen.groups["hidden"].kept == {1: 2, 2: 4, 3: 5}
    assert (seen.round, seen.similarity) == (1, None)


def test_who_sent_no_scores_has_no_say_in_them():
    silent = update("d", W)
    seen = observation(AFTER, [sent("c"), silent], MAP, {}, GROUPS, ranked=True)
    assert seen.groups["hidden"].scores == pytest.approx(sorted(SCORES["c"], reverse=True), rel=1e-4)


def test_in_any_other_round_a_channel_has_the_norm_of_its_weights():
    # Row i of the target layer is (10 i, 10 i): 20 i.
    state = State(params=W, round=4)
    strategy = make_strategy(StrategySpec(pruner=Component(name="magnitude")), RATIOS)
    seen = observation(state, [], MAP, specs(strategy, state), GROUPS, ranked=False)
    # The largest: 3 and 4, then 1 to 4.
    assert seen.groups == {
        "hidden": ChannelScores(
            layers=("hidden",),
            measure="magnitude",
            scores=(0, 20, 40, 60, 80),
            kept={1: (3, 4), 2: (1, 2, 3, 4), 3: 5},
        )
    }
    assert isinstance(strategy.pruner, Magnitude)


def test_a_model_that_has_diverged_shows_no_scores():
    state = State(params={**W, "hidden.weight": np.full((5, 2), np.inf, np.float32)})
    assert observation(state, [], MAP, {}, GROUPS, ranked=False).groups == {}


def test_what_is_kept_of_a_round_is_bounded(monkeypatch):
    state = State(params=W)
    strategy = make_strategy(StrategySpec(pruner=Component(name="magnitude")), RATIOS)
    # Five scores, and 2 + 4 listed channels.
    for most, shown in ((11, {"hidden"}), (10, set())):
        monkeypatch.setattr(observations, "MOST_NUMBERS", most)
        seen = observation(state, [], MAP, specs(strategy, state), GROUPS, ranked=False)
        assert seen.groups.keys() == shown
    monkeypatch.setattr(observations, "MOST_NUMBERS", 5)
    strategy = replace(strategy, pruner=Index())
    assert observation(state, [], MAP, specs(strategy, state), GROUPS, ranked=False).groups.keys() == {
        "hidden"
    }


@pytest.mark.parametrize(
    ("rounds", "step", "count"), [(1, 1, 1), (100, 1, 100), (101, 2, 52), (200, 2, 101), (1000, 16, 64)]
)
def test_of_many_rounds_about_a_hundred_are_looked_at(rounds, step, count):
    seen = [number for number in range(1, rounds + 1) if is_observed(number, rounds)]
    assert len(seen) == count
    assert (seen[0], seen[-1]) == (1, rounds)
    assert all(number % step == 0 for number in seen[1:-1])
