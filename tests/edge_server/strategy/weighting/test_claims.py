"""Figures that devices report count only up to what is usual among the other devices."""

from dataclasses import replace

import numpy as np
import pytest

from edge_server.config.load import load_config
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.weighting.claims import Claims
from schemas.strategy import StrategySpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update

CLAIMS = Claims(most_examples=10_000, factor=10)


def sent(*examples: int, **metrics: tuple[float, ...]):
    """Updates with these numbers of examples; each metric has one value per update."""
    rows = [
        {name: values[k] for name, values in metrics.items() if values[k] is not None}
        for k in range(len(examples))
    ]
    return [
        replace(update(f"c{k}", arrays(k), examples=count), metrics=row)
        for k, (count, row) in enumerate(zip(examples, rows, strict=True))
    ]


def believed(updates, births=None, claims: Claims = CLAIMS):
    known = {source.client: source.examples for source in updates} if births is None else births
    return claims.bound_figures(updates, known)


@pytest.mark.parametrize("claimed", [10**12, 3 * 10**9, 301])
def test_examples_count_as_ten_times_the_median_at_most(claimed):
    made, cut = believed(sent(20, 30, 40, claimed))
    # The median of four is the lower middle value, 30: a reported number, not an average with a false one.
    assert [source.examples for source in made] == [20, 30, 40, 300]
    assert cut == {"c3": f"examples {claimed:.6g} counts as 300"}


def test_updates_with_honest_figures_are_returned_unchanged():
    honest = sent(20, 30, 200, accuracy=(0.1, 0.2, 0.4), received_loss=(1.0, 2.0, 4.0))
    made, cut = believed(honest)
    assert all(bounded is original for bounded, original in zip(made, honest, strict=True))
    assert cut == {}


def test_no_device_counts_more_than_max_examples_whatever_the_others_report():
    assert [source.examples for source in believed(sent(50_000, 50_000))[0]] == [10_000, 10_000]


def test_with_two_devices_the_smaller_claim_sets_the_limit():
    assert [source.examples for source in believed(sent(30, 10**12))[0]] == [30, 300]


def test_a_small_round_is_compared_with_all_known_devices():
    births = {"c0": 400, "c1": 400, "c2": 400, "c3": 100}
    assert [source.examples for source in believed(sent(30, 700), births)[0]] == [30, 700]


def test_examples_count_up_to_twice_those_at_birth_or_up_to_the_usual_number():
    births = {"c0": 100, "c1": 100, "c2": 100, "c3": 10}
    made, _ = believed(sent(100, 150, 900, 90), births)
    # The median is 100: c2 may have grown to 200, c3 to the usual number.
    assert [source.examples for source in made] == [100, 150, 200, 90]


def test_steps_are_limited_in_proportion_to_the_examples():
    made, _ = believed(sent(20, 30, 40, 3000, steps=(2, 3, 4, 300)))
    assert made[3].metrics["steps"] == 30


@pytest.mark.parametrize(
    ("name", "worst", "most"),
    # Medians of 0.2, whose MAD is 0: ten medians of a loss, and half of all answers above that of accuracies.
    [("received_loss", 1e9, 2.0), ("train_loss", 1e9, 2.0), ("accuracy", 1.0, 0.7)],
)
def test_a_figure_far_from_the_others_is_limited_to_what_is_usual(name, worst, most):
    made, cut = believed(sent(10, 10, 10, 10, **{name: (0.2, 0.2, 0.2, worst)}))
    assert made[3].metrics[name] == pytest.approx(most)
    assert set(cut) == {"c3"}


def test_a_small_loss_is_not_limited_when_all_others_are_almost_zero():
    """Once a run has memorised its data, a device with few examples has a larger loss than most."""
    losses = (0.002, 0.001, 0.003, 0.0229)
    made, cut = believed(sent(300, 310, 200, 82, train_loss=losses))
    assert (made[3].metrics["train_loss"], cut) == (0.0229, {})
    assert believed(sent(300, 310, 200, 82, train_loss=(*losses[:3], 5.0)))[0][3].metrics["train_loss"] < 1.1


@pytest.mark.parametrize(
    "accuracies",
    [
        # Their mean is 0.108. Median and MAD of all ten are 0, and of the three 0.36 and 0.06 (bound: 0.72).
        (*7 * (0.0,), 0.3, 0.36, 0.42),
        # One class each, and a model that answers with one of them.
        (*7 * (0.0,), 1.0, 1.0, 1.0),
        # 0, 1 or 2 of five held-out examples; the lonely one is 0 + 0.5 at most.
        (0.0, 0.0, 0.0, 0.0, 0.4),
        # 1 or 3 of five: a median of 0.2 with a MAD of 0 allows 0.2 + 0.5.
        (0.2, 0.2, 0.2, 0.2, 0.6),
    ],
)
def test_honest_accuracies_of_few_examples_count_as_reported(accuracies):
    made, cut = believed(sent(*len(accuracies) * (20,), accuracy=accuracies))
    assert [source.metrics["accuracy"] for source in made] == list(accuracies)
    assert cut == {}


@pytest.mark.parametrize("count", [2, 9, 99])
@pytest.mark.parametrize(
    ("name", "claim", "most"), [("accuracy", 1.0, 0.5), ("train_loss", 1e9, 1.0), ("received_loss", 1e9, 1.0)]
)
def test_one_claim_among_zeros_is_bounded_though_median_and_deviation_are_zero(count, name, claim, most):
    made, cut = believed(sent(*(count + 1) * (20,), **{name: (*count * (0.0,), claim)}))
    assert (made[-1].metrics[name], set(cut)) == (most, {f"c{count}"})


def test_a_negative_loss_counts_as_zero():
    made, _ = believed(sent(10, 10, 10, 10, received_loss=(1.0, 2.0, 2.0, -1e9)))
    assert made[3].metrics["received_loss"] == 0


def test_with_two_devices_no_loss_counts_as_an_outlier():
    assert believed(sent(10, 10, received_loss=(1.0, 1e9)))[1] == {}


def test_limiting_again_changes_nothing():
    once, _ = believed(sent(20, 30, 40, 10**12, accuracy=(0.1, 0.1, 0.15, 1.0)))
    assert believed(once, {"c0": 20, "c1": 30, "c2": 40, "c3": 300})[1] == {}


def test_an_excessive_claim_of_examples_weighs_ten_medians_in_the_model():
    strategy = make_strategy(StrategySpec(), RATIOS)
    assert close_round(strategy, state(), sent(30, 30, 10**12), MAP).observed["weights"][
        "c2"
    ] == pytest.approx(1)
    bounded = load_config("fedavg", ["max-examples-factor=10"]).make_strategy()
    weights = close_round(bounded, state(), sent(30, 30, 10**12), MAP).observed["weights"]
    # 30, 30 and 300.
    assert weights == pytest.approx({"c0": 1 / 12, "c1": 1 / 12, "c2": 10 / 12})


def test_one_claimed_accuracy_among_zeros_buys_no_weight():
    strategy = load_config("fedrad", []).make_strategy()
    liar = sent(30, 30, 30, 30, accuracy=(0.0, 0.0, 0.0, 1.0), received_loss=(1.0, 1.0, 1.0, 1.0))
    assert set(close_round(strategy, state(), liar, MAP).observed["weights"].values()) == {0.25}


def test_weights_from_reported_figures_are_limited_to_a_multiple_of_the_median():
    weights = np.array([0.0, 0.01, 0.01, 0.98])
    # The lower median of the weights above 0 is 0.01: 0.01, 0.01 and 0.1, divided by their sum.
    assert CLAIMS.limit_weights(weights) == pytest.approx(np.array([0, 1, 1, 10]) / 12)
    fair = np.array([0.1, 0.4, 0.5])
    assert CLAIMS.limit_weights(fair) is fair
