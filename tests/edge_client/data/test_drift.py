"""The test for drift, and how long its alarm stands."""

import numpy as np
import pytest

from edge_client.data.drift import feature_statistics, kolmogorov_smirnov, most_different
from edge_client.data.drift_alarm import DriftAlarm
from schemas.values import DriftFinding


def test_a_small_case_by_hand() -> None:
    # Shares at 1, 2, 3, 4: 1/2, 1, 1, 1 against 0, 0, 1/2, 1. The largest difference is 1; scaled by
    # sqrt(2 * 2 / 4) = 1. The series is 2 (e^-2 - e^-8 + ...) = 0.26999967.
    found = kolmogorov_smirnov(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    assert found == pytest.approx(0.26999967, abs=1e-7)


@pytest.mark.parametrize(("count", "other", "shift"), [(60, 80, 0.0), (200, 50, 0.3), (500, 500, 0.2)])
def test_p_values_agree_with_scipy(count: int, other: int, shift: float) -> None:
    # Imported here: it takes a second of every process that collects the tests.
    from scipy.stats import ks_2samp

    rng = np.random.default_rng(count)
    first, second = rng.normal(size=count), rng.normal(size=other) + shift
    exact = ks_2samp(first, second, method="exact").pvalue
    assert kolmogorov_smirnov(first, second) == pytest.approx(exact, rel=0.35, abs=1e-6)


def test_equal_samples_do_not_differ() -> None:
    values = np.arange(50.0)
    assert kolmogorov_smirnov(values, values) == 1.0


def test_false_alarms_are_at_most_as_frequent_as_stated() -> None:
    rng = np.random.default_rng(0)
    tests, rate = 1000, 0.05
    alarms = 0
    for _ in range(tests):
        known, fresh = rng.normal(size=(200, 6)), rng.normal(size=(60, 6))
        alarms += most_different({str(c): (known[:, c], fresh[:, c]) for c in range(6)})[1] <= rate
    # Three standard deviations of a share of 0.05 in 1000 tests are 0.021.
    assert alarms / tests <= rate + 0.021
    # It is no test that never speaks.
    assert alarms > 0


def test_a_shift_of_a_standard_deviation_in_one_of_many_statistics_is_found_and_named() -> None:
    rng = np.random.default_rng(1)
    known, fresh = rng.normal(size=(200, 20)), rng.normal(size=(60, 20))
    fresh[:, 7] += 1.0
    name, p = most_different({str(c): (known[:, c], fresh[:, c]) for c in range(20)})
    assert name == "7"
    assert p < 0.001


def test_rows_are_described_by_values_and_pictures_by_mean_and_deviation() -> None:
    rows = np.array([[1.0, 5.0], [2.0, 6.0]])
    assert {n: v.tolist() for n, v in feature_statistics(rows).items()} == {
        "mean of channel 0": [1.0, 2.0],
        "mean of channel 1": [5.0, 6.0],
    }
    pictures = np.array([[[[0, 2], [2, 0]]]], np.uint8)
    assert {n: v.tolist() for n, v in feature_statistics(pictures).items()} == {
        "mean of channel 0": [1.0],
        "deviation of channel 0": [1.0],
    }


FOUND = DriftFinding(statistic="loss", p_value=0.001, examples=60)


def trainings_until_the_end(losses: list[float]) -> int | None:
    """The number of trainings after which the alarm has ended; None if it stands after all of them."""
    alarm: DriftAlarm | None = DriftAlarm(FOUND)
    for count, loss in enumerate(losses, 1):
        assert alarm is not None
        alarm = alarm.after_training(loss)
        if alarm is None:
            return count
    return None


@pytest.mark.parametrize(
    ("losses", "trainings"),
    [
        pytest.param([2.0, 1.5, 1.2, 1.0, 0.9], None, id="each training helps"),
        pytest.param([2.0, 1.5, 1.49, 1.48], 4, id="two in a row do not"),
        pytest.param([2.0, 1.5, 1.6, 1.4, 1.39, 1.1], None, id="one that does not is forgiven"),
        pytest.param([2.0, 1.0, 0.98, 0.97], 4, id="a gain is a share of the first loss, not of the last"),
        pytest.param([0.5, 0.5, 0.5], 3, id="a false alarm of a model that has learned all"),
    ],
)
def test_an_alarm_stands_while_training_helps(losses: list[float], trainings: int | None) -> None:
    assert trainings_until_the_end(losses) == trainings


def test_small_gains_add_up_to_one() -> None:
    # 1.5 to 1.47 is too little, 1.5 to 1.45 is enough.
    assert trainings_until_the_end([2.0, 1.5, 1.47, 1.45, 1.44, 1.43]) == 6


def test_without_a_loss_an_alarm_ends_with_the_first_training() -> None:
    assert DriftAlarm(FOUND).after_training(None) is None
    assert DriftAlarm(FOUND, first=2.0, lowest=2.0).after_training(None) is None
