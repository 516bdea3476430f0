"""Which tier a device gets when it does not state one: by its memory, by its time, by what it has shown."""

from __future__ import annotations

import pytest

from edge_server.strategy.evidence import ByEvidence, Candidate, Needs, Trained

MB = 1_000_000
# Tiers of 10, 20 and 40 MB and of 100 bytes per example; of 1, 2 and 4 million MACs.
POLICY = ByEvidence(
    needs=(Needs(10 * MB, 100, 1 * MB), Needs(20 * MB, 100, 2 * MB), Needs(40 * MB, 100, 4 * MB)),
    levels=(0.6, 0.3, 0.0),
    deadline_s=20.0,
    epochs=lambda number: 2 if number == 1 else 4,
)


def tier(candidate: Candidate, state: object = None, number: int = 1) -> int:
    return POLICY.act(state, [candidate], number)["a"]


def board(**words: object) -> Candidate:
    return Candidate("a", **{"examples": 1000, "guess": 2, "free": 1000 * MB, **words})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("free_mb", "expected"),
    # 1,000 examples take 0.1 MB; times 1.2 the tiers need 12.12, 24.12 and 48.12 MB.
    [(0, 1), (12, 1), (24, 1), (24.2, 2), (48, 2), (48.2, 3), (10_000, 3)],
)
def test_the_largest_sub_model_that_fits_the_memory_is_chosen(free_mb: float, expected: int) -> None:
    assert tier(board(free=int(free_mb * MB))) == expected


def test_examples_need_memory_too() -> None:
    # 100,000 examples take 10 MB: 1.2 * 50 = 60 MB for the largest.
    assert tier(board(free=59 * MB, examples=100_000)) == 2
    assert tier(board(free=61 * MB, examples=100_000)) == 3


@pytest.mark.parametrize(
    ("speed", "expected"),
    # Half of 20 s; 3 passes of 1,000 examples, twice: 6, 12 and 24 G MACs, so 0.6, 1.2 and 2.4 G a second.
    [(0.1e9, 1), (0.6e9, 1), (1.19e9, 1), (1.2e9, 2), (2.39e9, 2), (2.4e9, 3), (None, 3)],
)
def test_the_largest_sub_model_that_trains_in_time_is_chosen(speed: float | None, expected: int) -> None:
    assert tier(board(speed=speed)) == expected


def test_a_round_with_more_epochs_asks_for_less() -> None:
    assert tier(board(speed=2.4e9), number=1) == 3
    assert tier(board(speed=2.4e9), number=2) == 2


def test_the_tighter_of_memory_and_time_decides() -> None:
    assert tier(board(free=25 * MB, speed=9e9)) == 2
    assert tier(board(free=1000 * MB, speed=0.6e9)) == 1


def test_what_a_device_states_wins_over_all_evidence() -> None:
    assert tier(board(stated=3, free=0, speed=1.0, refusals=9)) == 3
    assert tier(board(stated=7)) == 3


@pytest.mark.parametrize(("guess", "expected"), [(1, 1), (3, 3), (9, 3)])
def test_where_free_memory_is_not_known_a_guess_takes_its_place(guess: int, expected: int) -> None:
    assert tier(board(free=None, guess=guess)) == expected


def test_every_task_that_found_no_memory_costs_a_tier_of_what_the_memory_speaks_for() -> None:
    assert [tier(board(refusals=times)) for times in range(4)] == [3, 2, 1, 1]
    # The time allows two tiers as it is: a refusal by memory changes nothing there.
    assert tier(board(speed=1.2e9, refusals=1)) == 2


def test_measured_rounds_correct_what_was_believed() -> None:
    believed = board(speed=100e9)
    assert tier(believed) == 3
    # The largest: 3 * 4 M * 1,000 * 2 = 24 G MACs in 40 s are 0.6 G a second.
    slow = POLICY.observe(None, [Trained("a", 1000, 2, 40.0, ratio=0.0)])
    assert slow == {"a": pytest.approx(0.6e9)}
    assert tier(believed, slow) == 1
    # A round of tier 1 in 2 s is 3 G a second: halfway from 0.6.
    better = POLICY.observe(slow, [Trained("a", 1000, 2, 2.0, ratio=0.6)])
    assert better == {"a": pytest.approx(1.8e9)}
    assert tier(believed, better) == 2


def test_a_ratio_between_two_tiers_counts_as_between_them() -> None:
    # 0.15 is halfway between 4 M and 2 M MACs: 3 * 3 M * 1,000 * 1 = 9 G in 9 s.
    assert POLICY.observe({}, [Trained("a", 1000, 1, 9.0, ratio=0.15)]) == {"a": pytest.approx(1e9)}


def test_a_training_of_nothing_teaches_nothing_and_the_order_of_devices_is_irrelevant() -> None:
    assert POLICY.observe({"b": 1.0}, [Trained("a", 0, 2, 1.0, 0.0), Trained("a", 5, 2, 0.0, 0.0)]) == {
        "b": 1.0
    }
    two = [Trained("a", 10, 1, 1.0, 0.0), Trained("b", 20, 1, 1.0, 0.3)]
    assert POLICY.observe(None, two) == POLICY.observe(None, two[::-1])
