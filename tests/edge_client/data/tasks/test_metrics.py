"""Figures of merit against numbers worked by hand, and against scikit-learn's definitions."""

import numpy as np
import pytest

from edge_client.data.tasks import metrics
from edge_client.data.tasks.learning_task import Answers
from edge_client.data.tasks.registry import TASKS

OUTPUTS = np.array([[2.0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 3]], np.float32)  # answers 0, 1, 0, 2
ANSWERS = Answers(OUTPUTS, np.array([0, 1, 1, 2]), np.array([0, 1, 1, 2]))


def test_figures_of_classes() -> None:
    # Right: 0, 1 and 2; wrong: the third, a 1 that was taken for a 0.
    assert metrics.accuracy(ANSWERS) == 0.75
    # Recalls 1/1, 1/2, 1/1.
    assert metrics.recalls(ANSWERS).tolist() == [1, 0.5, 1]
    assert metrics.balanced_accuracy(ANSWERS) == pytest.approx(5 / 6)
    # F1: class 0 has TP 1, FP 1: 2/3; class 1 has TP 1, FN 1: 2/3; class 2 is 1.
    assert metrics.macro_f1(ANSWERS) == pytest.approx((2 / 3 + 2 / 3 + 1) / 3)


def test_counts_of_each_class_and_of_those_recognised() -> None:
    # One 0, two 1 of which one was taken for a 0, one 2.
    assert metrics.class_counts(ANSWERS).tolist() == [[1, 1], [2, 1], [1, 1]]
    # Flags: of 4 examples 2 have the first, of which one is recognised, and none has the second.
    flags = np.array([[1, 0], [1, 0], [0, 0], [0, 0]], np.float32)
    said = np.array([[3.0, -1], [-2, -1], [1, -1], [-1, 5]], np.float32)
    assert metrics.flag_counts(Answers(said, flags, flags)).tolist() == [[2, 1], [0, 0]]


def test_a_class_that_does_not_occur_counts_in_no_mean() -> None:
    absent = Answers(OUTPUTS[:, :3], np.array([0, 1, 1, 1]), np.array([0, 1, 1, 1]))
    # Recalls 1 and 1/3, as the last example is taken for class 2, which no label has.
    assert np.isnan(metrics.recalls(absent)[2])
    assert metrics.balanced_accuracy(absent) == pytest.approx(2 / 3)


def test_the_area_under_the_curve_counts_pairs() -> None:
    # Flagged 0.9 and 0.4 against 0.5 and 0.1: of four pairs, 0.4 below 0.5 is the only wrong one.
    assert metrics.auroc(np.array([0.9, 0.4, 0.5, 0.1]), np.array([1, 1, 0, 0])) == 0.75
    # Equal scores count half: (0.5 > 0.1), (0.5 = 0.5).
    assert metrics.auroc(np.array([0.5, 0.5, 0.1]), np.array([1, 0, 0])) == 0.75
    assert np.isnan(metrics.auroc(np.array([0.5, 0.1]), np.array([1, 1])))


def test_the_area_under_the_curve_is_that_of_all_pairs() -> None:
    random = np.random.default_rng(0)
    scores, flags = random.integers(0, 20, 200) / 20, random.random(200) < 0.3
    above = scores[flags][:, None] - scores[~flags][None]
    assert metrics.auroc(scores, flags) == pytest.approx(((above > 0) + 0.5 * (above == 0)).mean())


def test_figures_of_flags() -> None:
    # Said yes where the output is above 0.
    outputs = np.array([[1.0, -1], [1, 1], [-1, -1]], np.float32)
    flags = np.array([[1.0, 0], [0, 1], [1, 0]], np.float32)
    answers = Answers(outputs, flags, flags)
    # Right: row 1 both, row 2 the second, row 3 the second: 4 of 6.
    assert metrics.flag_accuracy(answers) == pytest.approx(4 / 6)
    # Class 0: TP 1, FP 1, FN 1: 2/4; class 1: TP 1: 1.
    assert metrics.flag_f1s(answers).tolist() == [0.5, 1]
    assert metrics.flag_macro_f1(answers) == 0.75


def test_figures_of_numbers() -> None:
    outputs = np.array([[1.0, 0], [2, 0], [6, 0]], np.float32)
    labels = np.array([[1.0, 1], [3, 1], [5, -2]], np.float32)
    answers = Answers(outputs, labels, labels)
    # Absolute errors 0, 1, 1 and 1, 1, 2.
    assert metrics.absolute_errors(answers).tolist() == pytest.approx([2 / 3, 4 / 3])
    assert metrics.mean_absolute_error(answers) == pytest.approx(1)
    assert metrics.root_mean_square_error(answers) == pytest.approx(np.sqrt((0 + 1 + 1 + 1 + 1 + 4) / 6))
    # Column 1: 1 - 2/8 with mean 3; column 2: 1 - 6/6 with mean 0.
    assert metrics.r2(answers) == pytest.approx((0.75 + 0) / 2)


def test_anomalies_are_what_is_reconstructed_worst() -> None:
    targets = np.zeros((3, 2), np.float32)
    outputs = np.array([[0.0, 2], [1, 1], [0, 0]], np.float32)
    answers = Answers(outputs, targets, np.array([1, 0, 0]))
    assert metrics.reconstruction_errors(answers).tolist() == [2, 1, 0]
    assert metrics.anomaly_auroc(answers) == 1
    assert metrics.mean_reconstruction_error(answers) == 1
    assert metrics.anomaly_auroc(Answers(outputs, targets, np.zeros(3, int))) is None


def test_a_threshold_is_exceeded_by_one_usual_example_of_a_hundred() -> None:
    scores = np.arange(101, dtype=np.float32)
    outputs = np.stack([np.sqrt(scores), np.sqrt(scores)], axis=1)
    targets, labels = np.zeros((101, 2), np.float32), np.zeros(101, int)
    anomaly = TASKS["anomaly"]
    assert anomaly.threshold(Answers(outputs, targets, labels)) == pytest.approx(99)
    # What is known to be unusual does not count, and few examples give no threshold.
    labels[51:] = 1
    assert anomaly.threshold(Answers(outputs, targets, labels)) == pytest.approx(49.5)
    assert anomaly.threshold(Answers(outputs[:19], targets[:19], labels[:19])) is None
    assert TASKS["regression"].threshold(Answers(outputs, targets, targets)) is None


def test_figures_that_nothing_defines_are_left_out() -> None:
    unlabelled = Answers(np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32), np.zeros(2, int))
    found = TASKS["anomaly"].measure_answers(unlabelled)
    assert found == {"reconstruction": 1}
    assert TASKS["anomaly"].leading(found).name == "reconstruction"
    one_class = Answers(OUTPUTS, np.zeros(4, int), np.zeros(4, int))
    assert "auroc" not in TASKS["classification"].measure_answers(one_class)


def test_a_share_loses_points_and_another_figure_a_part_of_itself() -> None:
    accuracy, (mae, _, r2) = TASKS["classification"].metrics[0], TASKS["regression"].metrics
    assert accuracy.worsening(0.9, 0.85) == pytest.approx(0.05)
    assert mae.worsening(2.0, 2.5) == pytest.approx(0.25)
    assert mae.worsening(2.0, 1.0) == pytest.approx(-0.5)
    assert r2.worsening(0.5, 0.4) == pytest.approx(0.2)
    assert mae.worsening(0.0, 0.1) == float("inf")
    assert mae.worsening(0.0, 0.0) == 0


def test_clients_errors_add_as_their_squares() -> None:
    mae, rmse, _ = TASKS["regression"].metrics
    # Three examples of error 1 and one of error 3.
    assert mae.pool_values([1, 3], [3, 1]) == pytest.approx(1.5)
    assert rmse.pool_values([1, 3], [3, 1]) == pytest.approx(np.sqrt((3 + 9) / 4))
    assert mae.pool_values([], []) is None
