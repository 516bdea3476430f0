"""FedMP: ratios drawn by E-UCB, the reward of a round, split intervals, and R2SP; calculated by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.pruning.channel_selection import mean_ratio
from edge_server.strategy.aggregation.updates import to_global
from edge_server.strategy.closing import close_round, load_checkpoint, save_checkpoint
from edge_server.strategy.components import make_strategy
from edge_server.strategy.selection.bandit import Bandit, arms, best_arm, raise_ratio, reward, split
from edge_server.strategy.selection.interface import Client, RoundResult
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import CHANNELS, MAP, RATIOS, arrays, update
from tests.integration.bench import Bench

WEAK, STRONG = Client("weak", tier=1), Client("strong", tier=2)
TIERS = (0.5, 0.0)
ZEROS = {name: np.zeros_like(array) for name, array in arrays(0).items()}


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def round_of(number: int, **measured: tuple[float, float, float]) -> RoundResult:
    """A round in which every client measured (ratio, training loss, seconds)."""
    updates = [
        to_global(
            replace(
                update(name, ZEROS),
                metrics=dict(zip(("ratio", "train_loss", "seconds"), values, strict=True)),
            ),
            MAP,
        )
        for name, values in measured.items()
    ]
    weights = {name: 1 / len(measured) for name in measured}
    return RoundResult(number, updates, weights, ZEROS, ZEROS, clients=(WEAK, STRONG), channel_map=MAP)


# --- the bounds ---
def test_ratios_stay_between_the_ratio_of_the_tier_and_most():
    policy, state, rng = Bandit(TIERS, most=0.8), None, random()
    for number in range(1, 60):
        chosen = policy.act(state, (WEAK, STRONG), number, rng)
        assert 0.5 <= chosen["weak"] < 0.8
        assert 0.0 <= chosen["strong"] < 0.8
        measured = {name: (ratio, 2 / number, 1 + ratio) for name, ratio in chosen.items()}
        state = policy.observe(state, round_of(number, **measured))
    assert len(state["strong"]["splits"]) > len(state["weak"]["splits"]) > 0


def test_a_tier_that_prunes_more_than_most_keeps_its_ratio():
    assert Bandit((0.9,), most=0.8).act(None, (WEAK,), 1, random()) == {"weak": 0.9}


def test_a_tiers_table_is_raised_towards_one_proportionally():
    # Its mean is 0.4. A mean of 0.7 keeps (1 - 0.7) / (1 - 0.4) = 0.5 of what the table keeps: 0.8 and 0.4.
    table = raise_ratio({"a": 0.2, "b": 0.6}, 0.7)
    assert table == pytest.approx({"a": 0.6, "b": 0.8})
    assert mean_ratio(table) == pytest.approx(0.7)
    assert raise_ratio({"a": 0.2, "b": 0.6}, 0.4) == pytest.approx({"a": 0.2, "b": 0.6})
    assert raise_ratio(0.5, 0.7) == 0.7


# --- the reward ---
@pytest.mark.parametrize(
    ("decrease", "seconds", "earned"),
    [
        # The round's mean is 2 s. 3 s is off by half of the mean: 0.5 / 0.5 = 1. So is 1 s.
        (0.5, 3.0, 1.0),
        (0.5, 1.0, 1.0),
        # 6 s is off by twice the mean: 0.5 / 2.
        (0.5, 6.0, 0.25),
        # Exactly the mean counts as 0.1 off: 0.5 / 0.1.
        (0.5, 2.0, 5.0),
        # A higher loss gives a negative reward.
        (-0.2, 3.0, -0.4),
    ],
)
def test_the_reward_is_the_decrease_of_the_loss_over_the_gap_to_the_mean_time(decrease, seconds, earned):
    assert reward(decrease, seconds, 2.0, 0.1) == pytest.approx(earned)


def test_only_the_decrease_counts_when_all_times_are_zero():
    assert reward(0.5, 0.0, 0.0, 0.1) == pytest.approx(5.0)


def test_the_reward_uses_the_decrease_since_the_devices_last_round():
    policy = Bandit(TIERS, threshold=0.1, gap=0.1)
    first = policy.observe(None, round_of(1, weak=(0.6, 2.0, 1.0), strong=(0.2, 3.0, 3.0)))
    assert first["weak"] == {"loss": 2.0, "splits": (), "pulls": ()}
    second = policy.observe(first, round_of(2, weak=(0.7, 1.5, 1.0), strong=(0.3, 2.0, 3.0)))
    # The mean time is 2 s, both are off by half of it: (2 - 1.5) / 0.5 = 1 and (3 - 2) / 0.5 = 2.
    assert second["weak"] == {"loss": 1.5, "splits": (0.7,), "pulls": ((0.7, 1.0),)}
    assert second["strong"] == {"loss": 2.0, "splits": (0.3,), "pulls": ((0.3, 2.0),)}
    # A device that sits a round out keeps its state.
    third = policy.observe(second, round_of(3, strong=(0.1, 1.9, 4.0)))
    assert third["weak"] == second["weak"]
    # The mean time of a single device is its own: (2 - 1.9) / 0.1 = 1.
    assert third["strong"]["pulls"][-1] == pytest.approx((0.1, 1.0))
    assert third["strong"]["splits"] == (0.1, 0.3)


def test_without_a_finite_loss_nothing_is_learned():
    policy = Bandit(TIERS)
    known = policy.observe(None, round_of(1, weak=(0.6, 2.0, 1.0)))
    result = round_of(2, weak=(0.6, 2.0, 1.0))
    diverged = [replace(result.updates[0], source=replace(result.updates[0].source, metrics={"seconds": 1}))]
    assert policy.observe(known, replace(result, updates=diverged)) == known


def test_pulls_of_negligible_weight_are_dropped():
    # Pulls whose weight is below 0.1 ** 3 are dropped.
    policy, state = Bandit(TIERS, discount=0.1), None
    for number in range(1, 9):
        state = policy.observe(state, round_of(number, weak=(0.6, 10.0 - number, 1.0)))
    assert len(state["weak"]["pulls"]) == 3


# --- arms ---
def test_arms_are_the_intervals_between_splits_within_the_range_of_the_tier():
    assert arms(0.5, 0.8, ()) == [(0.5, 0.8)]
    assert arms(0.5, 0.8, (0.2, 0.6, 0.7)) == [(0.5, 0.6), (0.6, 0.7), (0.7, 0.8)]


def test_a_long_interval_is_split_at_the_drawn_ratio():
    choices = [(0.0, 0.3), (0.3, 0.4), (0.4, 0.8)]
    assert split((0.3, 0.4), choices, 0.1, 0.1) == (0.1, 0.3, 0.4)
    assert split((0.3, 0.4), choices, 0.6, 0.1) == (0.3, 0.4, 0.6)
    # 0.3 to 0.4 is not longer than 0.15; a ratio at an end splits nothing.
    assert split((0.3, 0.4), choices, 0.35, 0.15) == (0.3, 0.4)
    assert split((0.3, 0.4), choices, 0.4, 0.1) == (0.3, 0.4)


def test_an_untried_interval_is_chosen_first():
    assert best_arm([(0.0, 0.3), (0.3, 0.8)], [(0.1, 100.0)], 0.9) == (0.3, 0.8)


@pytest.mark.parametrize(
    ("discount", "best"),
    [
        # Pulls have the weights 0.25, 0.5, 1; n = 1.75, 2 ln n = 1.119.
        # Low:  1 + sqrt(1.119 / 0.25) = 3.12.  High: (0.5 * 3 + 1 * 3) / 1.5 + sqrt(1.119 / 1.5) = 3.86.
        (0.5, (0.3, 0.8)),
        # Pulls have the weights 0.01, 0.1, 1; n = 1.11, 2 ln n = 0.209.
        # Low:  1 + sqrt(0.209 / 0.01) = 5.57.  High: 3 + sqrt(0.209 / 1.1) = 3.44.
        (0.1, (0.0, 0.3)),
    ],
)
def test_the_largest_discounted_upper_confidence_bound_is_chosen(discount, best):
    pulls = [(0.1, 1.0), (0.5, 3.0), (0.6, 3.0)]
    assert best_arm([(0.0, 0.3), (0.3, 0.8)], pulls, discount) == best


def test_a_ratio_is_drawn_from_the_best_interval():
    state = {"strong": {"loss": 1.0, "splits": (0.3, 0.5), "pulls": ((0.1, 9.0), (0.4, 0.0), (0.6, 0.0))}}
    # Each interval was tried once, so with a discount of nearly 1 the mean decides: 9, 0 and 0.
    policy = Bandit(TIERS, discount=0.999)
    drawn = [policy.act(state, (STRONG,), 4, random(seed))["strong"] for seed in range(20)]
    assert 0 <= min(drawn) < max(drawn) < 0.3


# --- repeatable, and stored as plain data ---
def test_equal_states_and_seeds_give_equal_ratios_in_any_order_of_clients():
    policy = Bandit(TIERS)
    one, two = (policy.act(None, order, 1, random(3)) for order in ((WEAK, STRONG), (STRONG, WEAK)))
    assert one == two
    assert one != policy.act(None, (WEAK, STRONG), 1, random(4))


def test_the_learned_state_survives_a_checkpoint(tmp_path):
    policy = Bandit(TIERS)
    learned = policy.observe(None, round_of(1, weak=(0.6, 2.0, 1.0), strong=(0.2, 3.0, 3.0)))
    learned = policy.observe(learned, round_of(2, weak=(0.7, 1.5, 1.0), strong=(0.3, 2.0, 3.0)))
    save_checkpoint(tmp_path / "state", State(params=ZEROS, ratio=learned))
    back = load_checkpoint(tmp_path / "state", {"model": ZEROS}).ratio
    assert back == learned
    chosen = [policy.act(state, (WEAK, STRONG), 3, random()) for state in (learned, back)]
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("option", ["most=1.0", "discount=1.0", "threshold=0.0", "gap=0.0"])
def test_impossible_options_are_refused(option):
    name, _, value = option.partition("=")
    component = Component(name="bandit", options={name: float(value)})
    with pytest.raises(ConfigError, match=name):
        make_strategy(StrategySpec(ratio=component), RATIOS)


# --- R2SP ---
def test_r2sp_fills_pruned_parameters_from_the_global_model_before_averaging():
    # Channel i of the global model has bias i. One client keeps channels 1 and 3 and adds 1, the other keeps
    # 0 and 1 and adds 2; their weights are 0.25 and 0.75.
    model = {**ZEROS, "hidden.bias": np.arange(CHANNELS, dtype=np.float32)}
    ones = {name: np.ones_like(array) for name, array in ZEROS.items()}
    twos = {name: 2 * array for name, array in ones.items()}
    sent = [
        update("a", ones, spec=SubModelSpec(kept={"hidden": (1, 3)}), examples=10),
        update("b", twos, spec=SubModelSpec(kept={"hidden": (0, 1)}), examples=30),
    ]
    strategy = make_strategy(StrategySpec(transforms=(Component(name="fill-with-global"),)), RATIOS)
    after = close_round(strategy, State(params=model), sent, MAP).params
    # Recovered: a is 0, 2, 2, 4, 4 (residual 0, -, 2, -, 4) and b is 2, 3, 2, 3, 4 (residual -, -, 2, 3, 4).
    #   0.25 * 0 + 0.75 * 2 = 1.5, 0.25 * 2 + 0.75 * 3 = 2.75, 2, 0.25 * 4 + 0.75 * 3 = 3.25, 4.
    assert after["hidden.bias"].tolist() == [1.5, 2.75, 2, 3.25, 4]
    # The output bias is in both sub-models: 0.25 * 1 + 0.75 * 2.
    assert after["out.bias"].tolist() == [1.75, 1.75]


# --- a run ---
def test_a_run_learns_from_the_ratios_of_its_tasks(tmp_path: Path):
    bench = Bench(tmp_path, "fedmp", "clients.fraction=1.0", "model.name=mlp")
    drawn = {}
    for number in (1, 2):
        drawn = {name: task.ratio for name, task in bench.tasks(number, number).items()}
        bench.round(number)
    learned = bench.coordinator.model.state.ratio
    assert learned.keys() == {"weak", "strong"}
    for name, lowest in (("weak", 0.7), ("strong", 0.5)):
        ((ratio, earned),) = learned[name]["pulls"]
        assert ratio == drawn[name]
        assert lowest <= ratio < 0.8
        assert np.isfinite(earned)
