"""Client-level differential privacy: the influence of one client, the noise, and the adaptive clip."""

import math
from dataclasses import replace

import numpy as np
import pytest

from edge_server.strategy.aggregation.updates import to_global
from edge_server.strategy.closing import close_round, load_checkpoint, save_checkpoint
from edge_server.strategy.components import make_strategy
from edge_server.strategy.optimizer.optimizers import clamp_variances
from edge_server.strategy.privacy.accounting import round_key, standard_normal
from edge_server.strategy.privacy.mechanism import (
    Gaussian,
    clipped_sum,
    initial_state,
    noisy_change,
    over_budget,
    with_plan,
)
from edge_server.strategy.pruning.pruners import Cut
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import CHANNELS, MAP, RATIOS, arrays, state, update

SECRET = bytes(range(32))
WHOLE, SMALL = SubModelSpec(), SubModelSpec(kept={"hidden": 2})
SPECS = (WHOLE, SubModelSpec(kept={"hidden": 4}), SMALL, SubModelSpec(kept={"hidden": (1, 3)}))
QUIET = Gaussian(noise_multiplier=1e-9, clip=3.0)  # so little noise that results can be calculated by hand


def constant(value: float) -> dict[str, np.ndarray]:
    return {name: np.full(layout.shape, value, np.float32) for name, layout in MAP.parameters.items()}


def made(*updates):
    return [to_global(client_update, MAP) for client_update in updates]


def planned(mechanism: Gaussian, *specs: SubModelSpec, number: int = 1, **more):
    more = {"needed": len(specs), "population": len(specs), **more}
    return with_plan(initial_state(mechanism, SECRET), number, [Cut(spec) for spec in specs], **more)


def change_of(mechanism: Gaussian, privacy, updates, number: int = 1):
    return noisy_change(mechanism, privacy, number, made(*updates), MAP)[0]


def length(sums) -> float:
    return math.sqrt(sum(float(np.square(array).sum()) for array in sums.values()))


# --- the influence of one client ---
def test_sub_models_are_clipped_over_their_own_channels_and_divided_by_the_selected_holders():
    # All values are 1. The small model has 4 + 2 + 4 + 2 = 12 of them, the full model 10 + 5 + 10 + 2 = 27.
    # Clipped to length 3 they are 3 / sqrt(12) = 0.8660 and 3 / sqrt(27) = 0.5774. Where both hold a channel
    # the sum is 1.4434 and its half 0.7217; where only the full model does, it is 0.5774, divided by 1.
    sent = [update("a", constant(1), spec=SMALL), update("b", constant(1))]
    change = change_of(QUIET, planned(QUIET, SMALL, WHOLE), sent)
    assert change["hidden.bias"] == pytest.approx([0.7217, 0.7217, 0.5774, 0.5774, 0.5774], abs=1e-4)
    assert change["out.bias"] == pytest.approx([0.7217, 0.7217], abs=1e-4)


def test_an_update_shorter_than_the_clip_is_not_changed():
    change = change_of(QUIET, planned(QUIET, WHOLE), [update("a", constant(0.5))])
    assert change["hidden.bias"] == pytest.approx(np.full(CHANNELS, 0.5), abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_no_client_changes_the_sum_by_more_than_the_clip(seed):
    random = np.random.default_rng(seed)
    clip = float(random.uniform(0.1, 10))
    sent = [
        update(f"c{k}", {n: a * random.exponential(5) for n, a in arrays(100 * seed + k).items()}, spec=spec)
        for k, spec in enumerate(random.choice(np.array(SPECS, object), size=6))
    ]
    total, _, bits, _ = clipped_sum(made(*sent), clip)
    for left_out in range(6):
        others, _, fewer, _ = clipped_sum(made(*(sent[:left_out] + sent[left_out + 1 :])), clip)
        assert length({name: total[name] - others[name] for name in total}) <= clip * (1 + 1e-9)
        assert abs(bits - fewer) == 0.5


def test_the_length_of_a_hostile_update_has_no_effect():
    one = change_of(QUIET, planned(QUIET, WHOLE), [update("a", constant(1e3))])
    other = change_of(QUIET, planned(QUIET, WHOLE), [update("a", constant(1e6))])
    assert all(np.allclose(one[name], other[name]) for name in one)


def test_an_update_that_is_not_finite_adds_nothing():
    sent = [update("a", constant(math.nan)), update("b", constant(0.5))]
    change = change_of(QUIET, planned(QUIET, WHOLE, WHOLE), sent)
    assert change["out.bias"] == pytest.approx([0.25, 0.25], abs=1e-6)


def test_clients_that_drop_out_shorten_the_step_and_do_not_change_the_denominator():
    change = change_of(QUIET, planned(QUIET, *[WHOLE] * 4), [update("a", constant(0.4))])
    assert change["out.bias"] == pytest.approx([0.1, 0.1], abs=1e-6)


def test_only_the_needed_share_of_the_selected_clients_is_counted():
    # Four are selected, two needed: 4 * 2 / 4 = 2 holders.
    privacy = planned(QUIET, *[WHOLE] * 4, needed=2)
    change = change_of(QUIET, privacy, [update("a", constant(0.4)), update("b", constant(0.4))])
    assert change["out.bias"] == pytest.approx([0.4, 0.4], abs=1e-6)


def test_layers_requested_from_nobody_do_not_change():
    loud = Gaussian(noise_multiplier=5.0)
    privacy = with_plan(
        initial_state(loud, SECRET), 1, [Cut(WHOLE, returned=("out",))] * 2, needed=2, population=2
    )
    change = change_of(loud, privacy, [update("a", constant(0.1))])
    assert not change["hidden.weight"].any()
    assert change["out.weight"].all()


# --- the noise ---
def test_the_noise_is_normal_and_independent_for_every_label():
    numbers = standard_normal(SECRET, "a", (200_001,))
    # Of n normal numbers the mean is within 5 / sqrt(n) = 0.011, the variance within 5 * sqrt(2 / n) = 0.016,
    # and 4.55 % are beyond 2 (plus or minus 0.23 %).
    assert abs(numbers.mean()) < 0.011
    assert abs(numbers.var() - 1) < 0.016
    assert abs((np.abs(numbers) > 2).mean() - 0.0455) < 0.0023
    other = standard_normal(SECRET, "b", (200_001,))
    assert abs(float(np.corrcoef(numbers, other)[0, 1])) < 0.012
    assert (standard_normal(SECRET, "a", (200_001,)) == numbers).all()


@pytest.mark.parametrize("answered", [("a", "b"), ("b",), ()], ids=len)
def test_the_sum_has_noise_of_z_times_the_clip_however_many_clients_answer(answered):
    mechanism = Gaussian(noise_multiplier=2.0, clip=3.0)
    sent = {"a": update("a", constant(0), spec=SMALL), "b": update("b", constant(0))}
    both, alone = [], []
    for number in range(1, 201):
        privacy = planned(mechanism, SMALL, WHOLE, number=number)
        change = noisy_change(
            mechanism, privacy, number, made(*(sent[name] for name in ("b", *answered))), MAP
        )[0]
        both += change["hidden.bias"][:2].tolist()
        alone += change["hidden.bias"][2:].tolist()
    # z S = 6 on the sum: 3 where two were selected, 6 where one was. The tolerance is five deviations of 400
    # and 600 numbers.
    assert np.std(both) == pytest.approx(3, rel=5 / math.sqrt(2 * 400))
    assert np.std(alone) == pytest.approx(6, rel=5 / math.sqrt(2 * 600))


def test_a_repeated_round_is_the_same_and_different_updates_get_different_noise():
    mechanism = Gaussian()
    privacy = planned(mechanism, WHOLE)
    one, again = (change_of(mechanism, privacy, [update("a", constant(0.01))]) for _ in range(2))
    assert all((one[name] == again[name]).all() for name in one)
    other = change_of(mechanism, privacy, [update("a", constant(0.02))])
    # With the same noise the two would differ by 0.01 everywhere.
    gaps = np.concatenate([(other[name] - one[name]).ravel() for name in one])
    assert np.std(gaps) > 0.5


def test_the_secret_decides_the_noise():
    sums = {"x": np.zeros(3)}
    assert round_key(SECRET, 1, sums, 0.0) != round_key(bytes(32), 1, sums, 0.0)
    assert round_key(SECRET, 1, sums, 0.0) != round_key(SECRET, 2, sums, 0.0)


# --- the adaptive clip ---
@pytest.mark.parametrize(("quantile", "low", "high"), [(0.5, 17, 24), (0.8, 28, 37)])
def test_the_clip_finds_the_quantile_of_the_norms(quantile, low, high):
    """Forty clients with norms 1 to 40: the median is 20.5, the eighth decile 32.5."""
    mechanism = Gaussian(1.0, None, initial_clip=5.0, target_quantile=quantile)
    unit = 1 / math.sqrt(sum(array.size for array in arrays(0).values()))
    sent = made(*(update(f"c{k:02}", constant(k * unit)) for k in range(1, 41)))
    privacy = initial_state(mechanism, SECRET)
    for number in range(1, 81):
        privacy = with_plan(privacy, number, [Cut(WHOLE)] * 40, needed=40, population=40)
        _, privacy = noisy_change(mechanism, privacy, number, sent, MAP)
    assert low < privacy["clip"] < high


def test_counting_the_unclipped_costs_more_noise_on_the_updates():
    # s_b = max(200 / 20, 1) = 10: z' = (1 - 1/400)^-1/2 = 1.00125; of ten clients s_b = 1, and
    # z' = (1 - 1/4)^-1/2 = 1.1547.
    mechanism = Gaussian(1.0, None)
    assert mechanism.noises(200) == (pytest.approx(1.00125, abs=1e-5), 10.0)
    assert mechanism.noises(10) == (pytest.approx(1.1547, abs=1e-4), 1.0)
    # Both together cost z: 1 / z'^2 + 1 / (2 s_b)^2 = 1.
    for cohort in (3, 30, 300):
        updates, bits = mechanism.noises(cohort)
        assert updates**-2 + (2 * bits) ** -2 == pytest.approx(1)


# --- in a strategy ---
def private_strategy(**options):
    spec = StrategySpec(weighting=Component(name="equal"))
    return replace(make_strategy(spec, RATIOS), privacy=Gaussian(**options))


def test_closing_counts_the_release_and_reports_the_spent_epsilon():
    strategy = private_strategy(noise_multiplier=2.0)
    now = state(privacy=planned(strategy.privacy, WHOLE, WHOLE))
    for number in (1, 2, 3):
        now = close_round(strategy, now, [update("a", arrays(number)), update("b", arrays(9))], MAP)
    assert now.privacy["releases"] == ((2.0, 1, 1, 3),)
    assert now.observed["epsilon"] == pytest.approx(3.709, abs=1e-3)
    assert (now.observed["delta"], now.observed["clip"]) == (1e-5, 1.0)
    assert now.observed["weights"] == {"a": 0.5, "b": 0.5}


def test_weights_do_not_reveal_which_clients_have_no_examples():
    strategy = private_strategy()
    now = close_round(
        strategy,
        state(privacy=planned(strategy.privacy, WHOLE, WHOLE)),
        [update("a", arrays(1), examples=0), update("b", arrays(2))],
        MAP,
    )
    assert now.observed["weights"] == {"a": 0.5, "b": 0.5}


def test_the_plan_of_another_round_is_ignored():
    privacy = planned(QUIET, *[WHOLE] * 4, number=1)
    change = change_of(QUIET, privacy, [update("a", constant(0.4))], number=2)
    assert change["out.bias"] == pytest.approx([0.4, 0.4], abs=1e-6)


def test_the_state_survives_a_checkpoint(tmp_path):
    strategy = private_strategy(clip=None, drawn=True)
    before = state(privacy=planned(strategy.privacy, SMALL, WHOLE, population=5))
    save_checkpoint(tmp_path / "state", before)
    back = load_checkpoint(tmp_path / "state", {"model": before.params})
    assert back.privacy == before.privacy
    sent = [update("a", arrays(1), spec=SMALL), update("b", arrays(2))]
    one, other = close_round(strategy, before, sent, MAP), close_round(strategy, back, sent, MAP)
    assert all((one.params[name] == other.params[name]).all() for name in one.params)
    assert one.privacy == other.privacy


def test_noise_leaves_no_negative_variance():
    params = {"norm.running_var": np.array([-1.0, 2.0]), "norm.running_mean": np.array([-1.0])}
    sound = clamp_variances(params)
    assert sound["norm.running_var"].tolist() == [0.0, 2.0]
    assert sound["norm.running_mean"].tolist() == [-1.0]


def test_the_budget_ends_the_run_before_it_is_exceeded():
    # At z = 2 and delta 1e-5 one round spends 1.993, three spend 3.709 (see test_accounting).
    mechanism = Gaussian(noise_multiplier=2.0, budget=3.0)
    privacy = planned(mechanism, WHOLE)
    begun = 0
    while not over_budget(mechanism, privacy):
        begun += 1
        _, privacy = noisy_change(mechanism, privacy, begun, made(update("a", constant(0))), MAP)
        privacy = with_plan(privacy, begun + 1, [Cut(WHOLE)], needed=1, population=1)
    assert begun == 2
    assert mechanism.spent(privacy["releases"]) <= 3.0
    assert over_budget(mechanism, privacy).startswith(
        "privacy budget: another round would spend epsilon 3.709 of 3"
    )
