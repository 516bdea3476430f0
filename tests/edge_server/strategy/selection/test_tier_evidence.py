"""The tier of a device that does not state one: by memory, by training time and by measured rounds."""

import pytest

from edge_server.strategy.selection.tier_evidence import (
    REFERENCE,
    ByEvidence,
    Candidate,
    Means,
    MemoryNeeds,
    Placement,
    Speed,
    Trained,
    TrainingNeeds,
)
from schemas.values import TrainerName

MB = 1_000_000


def memory(torch_mb: int, onnx_mb: int) -> dict[TrainerName, MemoryNeeds]:
    return {"torch": MemoryNeeds(torch_mb * MB, 100), "onnx": MemoryNeeds(onnx_mb * MB, 100)}


# Tiers need 10, 20 and 40 MB plus 100 bytes per example with torch, 1, 3 and 6 MB with onnxruntime; 3, 6 and
# 12 M MACs; and 2, 4 and 8 MB moved.
POLICY = ByEvidence(
    needs=(
        TrainingNeeds(memory(10, 1), 3 * MB, 2 * MB),
        TrainingNeeds(memory(20, 3), 6 * MB, 4 * MB),
        TrainingNeeds(memory(40, 6), 12 * MB, 8 * MB),
    ),
    levels=(0.6, 0.3, 0.0),
    deadline_s=20.0,
    epochs=lambda number: 2 if number == 1 else 4,
)
NEVER = 1e30


def tier(candidate: Candidate, state: object = None, number: int = 1) -> int:
    return POLICY.act(state, [candidate], number)["a"].tier


def board(free: int | None = 1000 * MB, speed: Speed | None = None, **given: object) -> Candidate:
    means = (Means("torch", free, speed),)
    return Candidate("a", **{"examples": 1000, "guess": 2, "means": means, **given})  # type: ignore[arg-type]


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
    # Half of 20 s; 1,000 examples, twice: 6, 12 and 24 G MACs, so 0.6, 1.2 and 2.4 G a second.
    [(0.1e9, 1), (0.6e9, 1), (1.19e9, 1), (1.21e9, 2), (2.39e9, 2), (2.41e9, 3)],
)
def test_the_largest_sub_model_that_trains_in_time_is_chosen(speed: float, expected: int) -> None:
    assert tier(board(speed=Speed(speed, NEVER))) == expected


@pytest.mark.parametrize(
    ("speed", "expected"),
    # 4, 8 and 16 GB are moved in those 10 s.
    [(0.1e9, 1), (0.79e9, 1), (0.81e9, 2), (1.59e9, 2), (1.61e9, 3)],
)
def test_copying_memory_also_counts_towards_the_time(speed: float, expected: int) -> None:
    assert tier(board(speed=Speed(NEVER, speed))) == expected


def test_with_unknown_speed_memory_alone_decides() -> None:
    assert tier(board(speed=None)) == 3


def test_a_round_with_more_epochs_gives_a_smaller_sub_model() -> None:
    assert tier(board(speed=Speed(2.41e9, NEVER)), number=1) == 3
    assert tier(board(speed=Speed(2.41e9, NEVER)), number=2) == 2


def test_the_tighter_of_memory_and_time_decides() -> None:
    assert tier(board(free=25 * MB, speed=Speed(9e9, NEVER))) == 2
    assert tier(board(free=1000 * MB, speed=Speed(0.6e9, NEVER))) == 1


def test_a_stated_tier_overrides_all_evidence() -> None:
    assert tier(board(stated=3, free=0, speed=Speed(1.0, 1.0), refusals=9)) == 3
    assert tier(board(stated=7)) == 3


@pytest.mark.parametrize(("guess", "expected"), [(1, 1), (3, 3), (9, 3)])
def test_with_unknown_free_memory_the_guess_is_used(guess: int, expected: int) -> None:
    assert tier(board(free=None, guess=guess)) == expected


def test_every_refusal_for_lack_of_memory_lowers_the_tier_by_memory_by_one() -> None:
    assert [tier(board(refusals=times)) for times in range(4)] == [3, 2, 1, 1]
    # The time already limits the tier to 2, so a refusal for lack of memory changes nothing.
    assert tier(board(speed=Speed(1.21e9, NEVER), refusals=1)) == 2


def placed(*means: Means, refusals: int = 0) -> Placement:
    return POLICY.act(None, [Candidate("a", 1000, 2, means, refusals=refusals)], 1)["a"]


def test_the_first_trainer_with_which_a_tier_fits_is_used() -> None:
    # The smallest tier needs 1.2 * 10.1 = 12.12 MB with torch, and 1.2 * 1.1 = 1.32 MB with onnxruntime.
    enough, short = Means("torch", 13 * MB), Means("torch", 12 * MB)
    other = Means("onnx", 4 * MB)
    assert placed(enough, other) == Placement(1, "torch")
    # Of 1.32, 3.72 and 7.32 MB two fit into 4 MB.
    assert placed(short, other) == Placement(2, "onnx")
    assert placed(other) == Placement(2, "onnx")
    assert placed(short, Means("onnx", 1 * MB)) == Placement(1, "onnx")
    assert placed(short) == Placement(1, "torch")


def test_a_device_that_refused_the_smallest_tier_of_a_trainer_uses_the_next() -> None:
    two = (Means("torch", 25 * MB), Means("onnx", 1000 * MB))
    tiers = [placed(*two, refusals=times) for times in range(6)]
    assert [(found.tier, found.trainer) for found in tiers] == [
        (2, "torch"),
        (1, "torch"),
        (3, "onnx"),
        (2, "onnx"),
        (1, "onnx"),
        (1, "onnx"),
    ]


def test_the_speed_counts_that_was_measured_with_the_trainer_in_use() -> None:
    # 0.6 G MACs a second are enough for the smallest tier, 2.41 G for the largest.
    slow, fast = Speed(0.6e9, NEVER), Speed(2.41e9, NEVER)
    assert placed(Means("torch", 1000 * MB, slow), Means("onnx", 1000 * MB, fast)) == Placement(1, "torch")
    assert placed(Means("torch", 0, slow), Means("onnx", 1000 * MB, fast)) == Placement(3, "onnx")


def test_measured_rounds_correct_the_assumed_speed() -> None:
    believed = board(speed=Speed(NEVER, NEVER))
    assert tier(believed) == 3
    assert Speed(10e9, 20e9) == REFERENCE
    # The reference board needs 24 G / 10 G + 16 GB / 20 GB = 3.2 s for the largest; this one took 16 s.
    slow = POLICY.observe(None, [Trained("a", 1000, 2, 16.0, ratio=0.0)])
    assert slow == {"a": pytest.approx(5.0)}
    # 5 times 3.2, 1.6 and 0.8 s are 16, 8 and 4 s, and 10 s are available.
    assert tier(believed, slow) == 2
    # The middle tier in 24 s means a pace of 15: halfway from 5 is 10, which gives 8 s for the smallest.
    slower = POLICY.observe(slow, [Trained("a", 1000, 2, 24.0, ratio=0.3)])
    assert slower == {"a": pytest.approx(10.0)}
    assert tier(believed, slower) == 1


def test_a_ratio_between_two_tiers_is_interpolated() -> None:
    # 0.15 is halfway between 6 M and 12 M MACs, 4 MB and 8 MB: 9 G / 10 G + 6 GB / 20 GB = 1.2 s.
    assert POLICY.observe({}, [Trained("a", 1000, 1, 2.4, ratio=0.15)]) == {"a": pytest.approx(2.0)}


def test_an_empty_training_is_ignored_and_the_order_of_devices_is_irrelevant() -> None:
    assert POLICY.observe({"b": 1.0}, [Trained("a", 0, 2, 1.0, 0.0), Trained("a", 5, 2, 0.0, 0.0)]) == {
        "b": 1.0
    }
    two = [Trained("a", 10, 1, 1.0, 0.0), Trained("b", 20, 1, 1.0, 0.3)]
    assert POLICY.observe(None, two) == POLICY.observe(None, two[::-1])
