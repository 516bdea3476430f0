"""Heads from sums: ridge regression, nearest class means, the loss of a head on anyone's data."""

import numpy as np
import pytest

from edge_server.strategy.groups import least_squares
from edge_server.strategy.groups.least_squares import Head, Sums, choose_ratio, class_means, loss, ridge

RANDOM = np.random.default_rng(7)


def sums_of(features: np.ndarray, targets: np.ndarray) -> Sums:
    columns = np.concatenate([features, np.ones((len(features), 1))], 1)
    return Sums(columns.T @ columns, columns.T @ targets, float(np.square(targets).sum()))


def drawn(count: int = 200, width: int = 12, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Features around a centre for each class, and one-hot targets."""
    labels = RANDOM.integers(classes, size=count)
    features = RANDOM.normal(size=(classes, width))[labels] + RANDOM.normal(size=(count, width))
    return features, np.eye(classes)[labels]


def test_ridge_on_three_points_matches_the_calculation() -> None:
    # x = -1, 0, 1 and y = 0, 1, 5: around the means 0 and 2, G = 2 and C = 5. With half the mean diagonal as
    # penalty, w = 5 / (2 + 1), and the bias is the mean of y.
    head = ridge(sums_of(np.array([[-1.0], [0.0], [1.0]]), np.array([[0.0], [1.0], [5.0]])), 0.5)
    assert head.weight.item() == pytest.approx(5 / 3)
    assert head.offset.item() == pytest.approx(2)


def test_without_a_bias_the_line_passes_through_0() -> None:
    head = ridge(sums_of(np.array([[1.0], [2.0]]), np.array([[1.0], [3.0]])), 0.2, bias=False)
    # G = 5, C = 7 and a penalty of 1.
    assert head.weight.item() == pytest.approx(7 / 6)
    assert head.offset.tolist() == [0]


@pytest.mark.parametrize("bias", [True, False])
def test_the_loss_of_a_head_follows_from_the_sums(bias: bool) -> None:
    features, targets = drawn()
    head = ridge(sums_of(features, targets), 0.1, bias=bias)
    errors = features @ head.weight + head.offset - targets
    assert loss(sums_of(features, targets), head) == pytest.approx(np.square(errors).sum(), rel=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_the_penalty_is_the_one_whose_head_does_best_on_the_examples_held_out(bias: bool) -> None:
    fitted, held_out = (sums_of(*drawn(60, 40)) for _ in range(2))
    losses = {ratio: loss(held_out, ridge(fitted, ratio, bias=bias)) for ratio in least_squares.RATIOS}
    assert choose_ratio(fitted, held_out, bias=bias) == min(losses, key=losses.__getitem__)


def test_without_examples_held_out_the_penalty_is_the_usual_one() -> None:
    nothing = Sums(np.zeros((13, 13)), np.zeros((13, 4)), 0.0)
    assert choose_ratio(sums_of(*drawn()), nothing) == least_squares.USUAL_RATIO


def test_sums_of_parts_add_up_and_are_taken_out_again() -> None:
    features, targets = drawn()
    first, second = sums_of(features[:50], targets[:50]), sums_of(features[50:], targets[50:])
    whole = sums_of(features, targets)
    assert (first + second).gram == pytest.approx(whole.gram, rel=1e-12)
    assert (whole - second).targets == pytest.approx(first.targets, abs=1e-12)


def test_the_first_features_are_the_leading_block() -> None:
    features, targets = drawn()
    part, alone = (sums_of(features, targets).of_features(np.arange(5)), sums_of(features[:, :5], targets))
    assert part.gram == pytest.approx(alone.gram)
    assert part.targets == pytest.approx(alone.targets)


def test_class_means_choose_the_nearest_mean() -> None:
    features, targets = drawn()
    sums = Sums(
        np.zeros((0, 0)), sums_of(features, targets).targets, float(np.square(features).mean(1).sum())
    )
    head = class_means(sums)
    means = np.stack([features[targets[:, c] == 1].mean(0) for c in range(4)])
    nearest = np.square(features[:, None] - means).sum(2).argmin(1)
    assert (features @ head.weight + head.offset).argmax(1).tolist() == nearest.tolist()


def test_scores_of_class_means_are_log_probabilities_of_equally_wide_classes() -> None:
    # Means 0 and 2, each example 1 away from its own: a variance of 1 and scores of (2 f - 2) for the second.
    features, targets = np.array([[-1.0], [1.0], [1.0], [3.0]]), np.eye(2)[[0, 0, 1, 1]]
    head = class_means(Sums(np.zeros((0, 0)), sums_of(features, targets).targets, 12.0))
    assert head.weight.tolist() == [[0, 2]]
    assert head.offset.tolist() == [0, -2]


def test_scores_of_class_means_that_are_far_apart_are_bounded() -> None:
    # Means 0 and 4 would differ by 8 halfway to each; they differ by 5.
    features, targets = np.array([[-1.0], [1.0], [3.0], [5.0]]), np.eye(2)[[0, 0, 1, 1]]
    head = class_means(Sums(np.zeros((0, 0)), sums_of(features, targets).targets, 36.0))
    assert head.weight.tolist() == [[0, 2.5]]
    assert head.offset.tolist() == [0, -5]


@pytest.mark.parametrize("bias", [True, False])
def test_a_class_that_nobody_has_is_not_chosen(bias: bool) -> None:
    features, targets = drawn(classes=3)
    padded = np.concatenate([targets, np.zeros((len(targets), 1))], 1)
    sums = Sums(np.zeros((0, 0)), sums_of(features, padded).targets, float(np.square(features).mean(1).sum()))
    chosen = (features @ class_means(sums, bias=bias).weight + class_means(sums, bias=bias).offset).argmax(1)
    assert bias is False or 3 not in chosen
    scores = ridge(sums_of(features, padded), 0.1)
    assert 3 not in (features @ scores.weight + scores.offset).argmax(1)


def test_the_scale_of_scores_is_two_over_their_error() -> None:
    # Two examples, two classes, each score off by a half, the root of a mean square of a quarter.
    held_out = sums_of(np.array([[0.0], [0.0]]), np.eye(2))
    assert least_squares.score_scale(held_out, Head(np.zeros((1, 2)), np.full(2, 0.5))) == pytest.approx(4)


def test_scores_of_a_class_count_by_the_root_of_its_share() -> None:
    # Eight examples, two and none, 10 / 3 on average; of a class without examples all scores are 0.
    sums = sums_of(np.zeros((10, 1)), np.eye(3)[[0] * 8 + [1] * 2])
    assert least_squares.class_scales(sums) == pytest.approx(np.sqrt([10 / 24, 10 / 6, 1]))


def test_the_scatter_of_single_examples_is_their_sample_covariance() -> None:
    features = np.random.default_rng(0).normal(size=(30, 3))
    one = np.ones((1, 1))
    devices = [[Sums(np.zeros((0, 0)), np.concatenate([row[:, None], one]), 0.0)] for row in features]
    whole = least_squares.total_of(part for parts in devices for part in parts)
    scatter = least_squares.Scatter.of(devices, whole)
    assert scatter.degrees == 29
    assert np.allclose(scatter.total / scatter.degrees, np.cov(features.T))


def test_means_of_devices_tell_the_covariance_of_their_examples() -> None:
    random = np.random.default_rng(0)
    stretched = random.normal(size=(20_000, 2)) * (3.0, 0.5)
    labels = random.integers(0, 2, 20_000)
    whole = np.concatenate([stretched + np.array([0.0, 5.0]) * labels[:, None], np.ones((20_000, 1))], 1)
    devices = [
        [Sums(np.zeros((0, 0)), whole[part].T @ np.eye(2)[labels[part]], 0.0)]
        for part in np.array_split(np.arange(20_000), 500)
    ]
    total = least_squares.total_of(part for parts in devices for part in parts)
    scatter = least_squares.Scatter.of(devices, total)
    assert scatter.total / scatter.degrees == pytest.approx(np.diag([9.0, 0.25]), rel=0.1, abs=0.1)


def test_without_a_second_device_class_covariances_choose_as_class_means_do() -> None:
    random = np.random.default_rng(0)
    means, labels = random.normal(size=(4, 6)) * 3, random.integers(0, 4, 400)
    features = means[labels] + random.normal(size=(400, 6))
    whole = np.concatenate([features, np.ones((400, 1))], 1)
    squares = float(np.square(features).mean(1).sum())
    sums = Sums(np.zeros((0, 0)), whole.T @ np.eye(4)[labels], squares)
    scatter = least_squares.Scatter.of([[sums]], sums)
    assert scatter.degrees == 0
    plain, own = least_squares.class_means(sums), least_squares.class_covariances(sums, scatter)
    chosen = [(features @ head.weight + head.offset).argmax(1) for head in (plain, own)]
    assert np.array_equal(*chosen)
