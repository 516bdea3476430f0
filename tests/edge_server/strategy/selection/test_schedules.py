"""Schedules: the value of each round and where steps begin."""

import numpy as np
import pytest

from edge_server.config.load import load_config
from edge_server.strategy.components import make_component, make_strategy
from edge_server.strategy.planning import plan
from edge_server.strategy.selection.policies import SCHEDULES, intervals, random_intervals, step_up
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from tests.edge_server.strategy.network import CLIENTS, NETWORK, state

RATIOS = (0.0,)


def values(schedule, rounds: int) -> list[float]:
    return [schedule(number) for number in range(1, rounds + 1)]


# --- step-up (AdaFL) ---
def test_each_fifth_of_the_rounds_has_its_own_fraction():
    # Figure 2: T = 100 and F = 5, so a step lasts 20 rounds and adds (0.5 - 0.1) / 4 = 0.1.
    schedule = step_up(rounds=100)
    expected = [0.1] * 20 + [0.2] * 20 + [0.3] * 20 + [0.4] * 20 + [0.5] * 20
    assert values(schedule, 100) == expected


@pytest.mark.parametrize(
    ("last", "fraction", "following"), [(20, 0.1, 0.2), (40, 0.2, 0.3), (60, 0.3, 0.4), (80, 0.4, 0.5)]
)
def test_a_step_ends_with_its_last_round(last, fraction, following):
    schedule = step_up(rounds=100)
    assert (schedule(last), schedule(last + 1)) == (fraction, following)


def test_steps_differ_by_one_round_when_the_rounds_do_not_divide_evenly():
    # Step of round t: floor((t - 1) * 5 / 7) = 0 0 1 2 2 3 4.
    assert values(step_up(rounds=7), 7) == [0.1, 0.1, 0.2, 0.3, 0.3, 0.4, 0.5]


def test_fewer_rounds_than_steps_still_go_from_start_to_end():
    assert values(step_up(rounds=3), 3) == [0.1, 0.3, 0.5]
    assert values(step_up(rounds=1), 1) == [0.1]


def test_rounds_beyond_the_last_stay_at_the_end():
    assert step_up(rounds=10)(11) == step_up(rounds=10)(1000) == 0.5


def test_steps_are_configurable_and_may_go_down():
    # F = 3 from 1 to 0.5 subtracts 0.25 twice; 6 rounds are 2 per step.
    schedule = step_up(start=1.0, end=0.5, steps=3, rounds=6)
    assert values(schedule, 6) == [1.0, 1.0, 0.75, 0.75, 0.5, 0.5]
    assert values(step_up(start=0.3, steps=1, rounds=4), 4) == [0.3] * 4


@pytest.mark.parametrize("options", [{"start": 0.0}, {"end": -0.1}, {"steps": 0}])
def test_impossible_steps_are_refused(options):
    with pytest.raises(ConfigError, match="schedule 'step-up': start and end must be positive"):
        make_component("schedule", SCHEDULES, Component(name="step-up", options=options))


def test_the_run_provides_the_number_of_rounds():
    spec = StrategySpec(fraction=Component(name="step-up"))
    assert values(make_strategy(spec, RATIOS, rounds=5).fraction, 5) == [0.1, 0.2, 0.3, 0.4, 0.5]
    with pytest.raises(ConfigError, match="'step-up' has no option 'rounds'"):
        make_strategy(StrategySpec(fraction=Component(name="step-up", options={"rounds": 5})), RATIOS)


# --- random-intervals (FedRAD) ---
class Dice:
    """A generator that returns the given rolls, which must be at least `low` and below `high`."""

    def __init__(self, *rolls: int) -> None:
        self.rolls = list(rolls)

    def integers(self, low: int, high: int) -> int:
        roll = self.rolls.pop(0)
        assert low <= roll < high
        return roll


def test_the_first_half_is_fixed_and_then_one_epoch_of_each_window_is_drawn():
    # E = 20, f = 5: floor(20 / 10) = 2 fixed intervals cover epochs 1-10; the windows 11-15 and 16-20 follow.
    # Their 3rd and 1st epochs are 13 and 16: 13 - 10 = 3 and 16 - 13 = 3.
    assert intervals(5, 20, Dice(3, 1)) == (5, 5, 3, 3)


def test_the_longest_interval_is_2f_minus_1_and_the_shortest_1():
    # First and then last of two windows: 11 - 10 = 1, 20 - 11 = 9.
    # Last and then first: 15 - 10 = 5, 16 - 15 = 1.
    assert intervals(5, 20, Dice(1, 5)) == (5, 5, 1, 9)
    assert intervals(5, 20, Dice(5, 1)) == (5, 5, 5, 1)


def test_epochs_after_the_last_whole_window_are_not_used():
    # E = 24: floor(24 / 10) = 2 fixed, windows 11-15 and 16-20; 21-24 is no window. 11 then 20: 1 and 9.
    assert intervals(5, 24, Dice(1, 5)) == (5, 5, 1, 9)
    # E = 26 adds the window 21-25; from 20 to its 2nd epoch, 22, is 2.
    assert intervals(5, 26, Dice(1, 5, 2)) == (5, 5, 1, 9, 2)


def test_a_window_that_contains_the_midpoint_is_random():
    # E = 15, f = 5: floor(1.5) = 1 fixed, windows 6-10 and 11-15: 8 - 5 = 3 and 12 - 8 = 4.
    assert intervals(5, 15, Dice(3, 2)) == (5, 3, 4)


@pytest.mark.parametrize(("f", "epochs"), [(1, 9), (2, 21), (4, 100), (5, 200), (5, 203), (7, 7), (6, 500)])
def test_intervals_keep_their_bounds_whatever_is_drawn(f, epochs):
    for seed in range(30):
        listed = intervals(f, epochs, np.random.default_rng(seed))
        assert len(listed) == epochs // f
        assert listed[: epochs // (2 * f)] == (f,) * (epochs // (2 * f))
        assert 1 <= min(listed) <= max(listed) <= max(f, 2 * f - 1)
        # The last drawn epoch is in the last whole window.
        assert epochs // f * f - f < sum(listed) <= epochs


def test_with_windows_of_one_epoch_there_is_nothing_to_draw():
    assert values(random_intervals(interval=1, epochs=8), 8) == [1] * 8


def test_by_default_there_are_as_many_intervals_as_rounds():
    # E = 5 * 40 = 200 gives floor(200 / 5) = 40 intervals, the first 20 of them fixed.
    listed = values(random_intervals(rounds=40), 40)
    assert listed[:20] == [5] * 20
    assert listed[20:] != [5] * 20
    assert sum(listed) <= 200


def test_rounds_after_the_last_window_have_the_fixed_interval():
    schedule = random_intervals(interval=4, epochs=16, rounds=100)
    assert values(schedule, 10)[4:] == [4] * 6


def test_the_seed_decides_the_intervals():
    one, again, other = (values(random_intervals(rounds=40, seed=seed), 40) for seed in (1, 1, 2))
    assert one == again != other


@pytest.mark.parametrize("options", [{"interval": 0}, {"interval": -2}, {"interval": 5, "epochs": 4}])
def test_impossible_intervals_are_refused(options):
    with pytest.raises(ConfigError, match="schedule 'random-intervals': interval must be at least 1"):
        make_component("schedule", SCHEDULES, Component(name="random-intervals", options=options))


# --- recipes ---
def strategy_of(recipe: str, *overrides: str):
    return load_config(recipe, overrides).make_strategy()


def test_the_recipe_of_the_dynamic_fraction_steps_up():
    assert values(strategy_of("adafl-fraction", "rounds=5").fraction, 5) == [0.1, 0.2, 0.3, 0.4, 0.5]


def test_the_recipe_of_random_intervals_decides_local_epochs_by_the_seed_of_the_run():
    one, again, other = (strategy_of("fedrad-interval", "rounds=20", f"seed={seed}") for seed in (1, 1, 2))
    assert one.local_epochs is not None
    assert values(one.local_epochs, 10) == [5] * 10
    assert values(one.local_epochs, 20) == values(again.local_epochs, 20)
    assert values(one.local_epochs, 20) != values(other.local_epochs, 20)


def test_devices_receive_the_intervals_as_local_epochs():
    strategy = strategy_of("fedrad-interval", "rounds=8")
    for closed in range(8):
        assignments = plan(
            strategy, state(round=closed), CLIENTS, NETWORK, np.random.default_rng(0)
        ).assignments
        expected = strategy.local_epochs(closed + 1)
        assert {assignment.local_epochs for assignment in assignments.values()} == {expected}
