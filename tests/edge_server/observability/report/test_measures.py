"""AdaFL's measures on histories calculated by hand."""

import pytest

from edge_server.observability.figures import ACCURACY
from edge_server.observability.report.costs import averaging_window, first_reached, measure
from edge_server.simulation.experiments.findings import spread
from tests.edge_server.simulation.experiments.made_up import record, summary


def history(*accuracies: float | None):
    return [record(number, accuracy) for number, accuracy in enumerate(accuracies, start=1)]


def test_a_target_is_reached_when_the_mean_of_five_rounds_exceeds_it():
    # Means of five: rounds 1-5 give 0.5, not above 0.5; rounds 2-6 give (0.5 * 4 + 0.6) / 5 = 0.52.
    reached = first_reached(history(0.5, 0.5, 0.5, 0.5, 0.5, 0.6, 0.9), 100, 0.5, ACCURACY)
    assert reached is not None
    # Two clients a round: 12 updates; 6 rounds of 800 bytes are 4,800, a full model has 400: 12 models.
    assert (reached.round, reached.updates, reached.models) == (6, 12, 12.0)


def test_one_good_round_does_not_reach_a_target():
    assert first_reached(history(0.1, 0.1, 0.1, 0.1, 0.9), 100, 0.5, ACCURACY) is None
    assert first_reached(history(0.9, 0.9, 0.9, 0.9), 100, 0.5, ACCURACY) is None


def test_untested_rounds_do_not_count_in_the_mean_but_add_to_the_cost():
    # Tested rounds 2, 4, 6, 8, 10 have mean 0.6 > 0.5: reached in round 10, after 20 updates.
    reached = first_reached(history(*[None, 0.6] * 5), 100, 0.5, ACCURACY)
    assert reached is not None
    assert (reached.round, reached.updates) == (10, 20)


def test_smaller_updates_cost_less_in_full_models_than_in_updates():
    # Two updates of 100 bytes each and a full model of 400 bytes: half a model a round.
    small = [record(number, 0.9, uplink=200) for number in range(1, 6)]
    reached = first_reached(small, 100, 0.5, ACCURACY)
    assert reached is not None
    assert (reached.updates, reached.models) == (10, 2.5)


def test_average_best_and_totals():
    # The mean of the last three, 0.8, 0.5 and 0.2, is 0.5.
    measured = measure(history(0.2, 0.8, 0.5, 0.2), summary(), targets=(0.9,), window=3)
    assert measured.average == pytest.approx(0.5)
    assert (measured.best, measured.final) == (0.8, 0.2)
    assert (measured.updates, measured.uplink_bytes, measured.downlink_bytes) == (8, 3200, 4000)
    assert measured.virtual_time_s == 4.0
    assert measured.reached == {0.9: None}


def test_of_a_number_the_least_is_the_best_and_a_target_is_reached_from_above():
    errors = [
        record(number, None).model_copy(update={"test_metrics": {"mae": error, "rmse": 9.0}})
        for number, error in enumerate((8.0, 2.0, 4.0, 3.0, 3.0, 2.5), start=1)
    ]
    measured = measure(errors, summary(), targets=(3.0, 1.0), window=2)
    assert (measured.average, measured.best, measured.final) == (2.75, 2.0, 2.5)
    # Rounds 1-5 have mean 4, rounds 2-6 have 2.9.
    assert measured.reached[1.0] is None
    assert measured.reached[3.0] is not None
    assert measured.reached[3.0].round == 6


def test_the_window_counts_rounds_and_not_tests():
    # Rounds 4 and 6 of the last four rounds (3 to 6) were tested: (0.6 + 0.8) / 2.
    measured = measure(history(None, 0.1, None, 0.6, None, 0.8), summary(), window=4)
    assert measured.average == pytest.approx(0.7)


def test_a_run_that_was_never_tested_has_no_accuracy():
    measured = measure(history(None, None), summary())
    assert (measured.average, measured.best, measured.final) == (None, None, None)


def test_the_window_may_be_a_share_of_the_rounds():
    assert averaging_window(3000, average_rounds=10, average_share=0.1) == 300
    assert averaging_window(4, average_rounds=10, average_share=0.1) == 1
    assert averaging_window(3000, average_rounds=10, average_share=None) == 10


def test_the_spread_is_the_sample_deviation():
    # Mean of 1 and 3 is 2; deviation sqrt((1 + 1) / (2 - 1)).
    of_two = spread([1.0, None, 3.0])
    assert of_two is not None
    assert (of_two.mean, of_two.count) == (2.0, 2)
    assert of_two.deviation == pytest.approx(2**0.5)
    of_one = spread([4.0])
    assert of_one is not None
    assert of_one.deviation is None
    assert spread([None]) is None
