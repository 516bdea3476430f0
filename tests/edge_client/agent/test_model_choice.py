"""A device exports the model that is better on held-out examples by more than chance, and forgets little."""

import numpy as np
import pytest

from edge_client.agent.model_choice import (
    ALONE,
    HALFWAY,
    PERSONAL,
    SHARED,
    UNEVEN,
    Candidate,
    blends,
    choose,
    skew,
)


def candidate(name: str, right: int, loss: float, retained: float | None = None, of: int = 20) -> Candidate:
    """A model that is right on the first examples, and loses `loss` on each, and 0.2 more on every other."""
    losses = np.full(of, loss) + 0.2 * (np.arange(of) % 2) * (name != SHARED)
    return Candidate(name, {}, (np.arange(of) >= right).astype(float), losses, {}, retained)


SHARED_ONE = candidate(SHARED, right=10, loss=1.0, retained=1.0)


def chosen(*others: Candidate) -> str:
    return choose((SHARED_ONE, *others)).name


def test_more_right_answers_and_less_loss_win() -> None:
    assert chosen(candidate(PERSONAL, right=14, loss=0.5)) == PERSONAL


@pytest.mark.parametrize(("right", "loss"), [(10, 0.5), (9, 0.5), (12, 0.9), (12, 1.2)])
def test_without_more_right_answers_or_with_as_much_loss_it_may_be_chance(right: int, loss: float) -> None:
    """Two of two are chance once in four; the differences from 0.9 are 0.1 and -0.1, with a mean of 0."""
    assert chosen(candidate(PERSONAL, right=right, loss=loss)) == SHARED


def test_a_loss_within_a_standard_error_is_chance() -> None:
    """Of 20 differences whose standard deviation is 0.103 a standard error is 0.023."""
    assert chosen(candidate(PERSONAL, right=12, loss=0.88)) == SHARED
    assert chosen(candidate(PERSONAL, right=12, loss=0.87)) == PERSONAL


def test_three_more_right_answers_are_enough_of_a_model_that_is_too_sure_of_itself() -> None:
    """By chance one in eight."""
    assert chosen(candidate(PERSONAL, right=13, loss=5.0)) == PERSONAL


def test_a_model_may_forget_only_for_a_gain() -> None:
    """20 examples: one more right answer is a gain of 5 points, and of 40 it is 2.5."""
    assert chosen(candidate(PERSONAL, right=11, loss=0.5, retained=0.1)) == PERSONAL
    shared = candidate(SHARED, right=20, loss=1.0, retained=1.0, of=40)
    for retained, kept in ((0.1, SHARED), (0.25, PERSONAL)):
        new = candidate(PERSONAL, right=21, loss=0.5, retained=retained, of=40)
        assert choose((shared, new)).name == kept


def test_the_model_halfway_is_tried_where_the_personal_one_is_not_kept() -> None:
    halfway = candidate(HALFWAY, right=15, loss=0.3, retained=0.9)
    assert chosen(candidate(PERSONAL, right=14, loss=0.5), halfway) == PERSONAL
    assert chosen(candidate(PERSONAL, right=10, loss=0.5), halfway) == HALFWAY


def test_a_model_trained_alone_has_to_beat_the_one_that_is_kept() -> None:
    personal = candidate(PERSONAL, right=14, loss=0.5)
    assert chosen(personal, candidate(ALONE, right=14, loss=0.3)) == PERSONAL
    assert chosen(personal, candidate(ALONE, right=17, loss=0.3)) == ALONE


def test_one_example_decides_nothing() -> None:
    shared, new = candidate(SHARED, right=0, loss=1.0, of=1), candidate(PERSONAL, right=1, loss=0.1, of=1)
    assert choose((shared, new)).name == SHARED


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


def test_blends_lie_on_lines_through_two_inputs() -> None:
    made = blends(np.array([[0.0, 0.0], [1.0, 2.0]], np.float32), seed=1)
    np.testing.assert_allclose(made[:, 1], 2 * made[:, 0], rtol=1e-5)
    assert ((made[:, 0] >= -1) & (made[:, 0] <= 2)).all()
