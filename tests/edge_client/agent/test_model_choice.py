"""A device exports the model of the lowest loss that makes no more errors than the one it received."""

import numpy as np
import pytest

from edge_client.agent.device_training import (
    HALFWAY,
    PERSONAL,
    SHARED,
    UNEVEN,
    Candidate,
    choose,
    class_offsets,
    skew,
)

SHARED_ONE = Candidate(SHARED, {}, error=0.3, loss=1.0)


def chosen(*others: Candidate) -> str:
    return choose(SHARED_ONE, others).name


def test_the_lowest_loss_wins() -> None:
    halfway, personal = Candidate(HALFWAY, {}, 0.3, 0.8), Candidate(PERSONAL, {}, 0.3, 0.9)
    assert chosen(halfway, personal) == chosen(personal, halfway) == HALFWAY
    assert chosen(Candidate(PERSONAL, {}, 0.1, 1.1)) == SHARED


def test_a_model_that_makes_more_errors_is_not_kept() -> None:
    assert chosen(Candidate(PERSONAL, {}, 0.31, 0.1)) == SHARED
    assert chosen(Candidate(PERSONAL, {}, 0.31, 0.1), Candidate(HALFWAY, {}, 0.3, 0.9)) == HALFWAY


def test_a_loss_without_a_value_is_no_lower() -> None:
    assert chosen(Candidate(PERSONAL, {}, 0.0, float("nan"))) == SHARED


def test_offsets_are_logarithms_of_frequencies_within_the_odds() -> None:
    """Three, one and no example, and one of each: shares of the most frequent class 1, 1/2 and 1/4."""
    labels = np.array([0, 0, 0, 1])
    np.testing.assert_allclose(np.exp(class_offsets(labels, 3, 10)), [1, 0.5, 0.25], rtol=1e-6)
    many = np.exp(class_offsets(np.repeat(labels, 100), 3, 10))
    np.testing.assert_allclose(many, [1, 101 / 301, 0.1], rtol=1e-6)
    assert not class_offsets(np.arange(4), 4, 10).any()


def test_skew_is_a_multiple_of_what_chance_makes_of_equally_frequent_classes() -> None:
    assert skew(np.array([0, 1, 2, 3]), 4) == 0
    # Shares 3/4, 1/4, 0, 0 instead of 1/4 each: a mean distance of 1/4. By chance sqrt(2 * 3/16 / (4 pi)).
    assert skew(np.array([0, 0, 0, 1]), 4) == pytest.approx(0.25 / 0.17275, rel=1e-4)


def test_equally_frequent_classes_are_rarely_uneven() -> None:
    random = np.random.default_rng(0)
    for classes, count in ((10, 200), (3, 60), (2, 40)):
        found = [skew(random.integers(classes, size=count), classes) for _ in range(200)]
        assert np.mean(np.array(found) > UNEVEN) < 0.15
        assert skew(np.arange(count) % max(1, classes // 2), classes) > UNEVEN
