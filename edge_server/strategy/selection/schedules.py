"""Schedules: a value for each round, counted from 1."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from edge_client.system.plugins import Registry

Schedule = Callable[[int], float]


def constant(value: float = 1.0) -> Schedule:
    """The same value in every round."""
    return lambda round_number: value


def step_up(start: float = 0.1, end: float = 0.5, steps: int = 5, rounds: int = 10) -> Schedule:
    """`steps` equally spaced values from `start` to `end`, each for as many rounds (AdaFL, section 2.3).

    The run provides `rounds`. If they do not divide evenly, steps differ by one round; with fewer rounds
    than steps each round is a step; later rounds stay at `end`.
    """
    if not (start > 0 and end > 0 and steps >= 1):
        raise ValueError("start and end must be positive, and steps at least 1")
    count = min(steps, rounds)
    # Rounded to 0.3, not 0.30000000000000004.
    values = [round(start + (end - start) * step / max(1, count - 1), 12) for step in range(count)]
    return lambda round_number: values[min((round_number - 1) * count // rounds, count - 1)]


def random_intervals(
    interval: int = 5, epochs: int | None = None, rounds: int = 10, seed: int = 0
) -> Schedule:
    """Local epochs between two rounds: `interval` in the first half, then random (FedRAD, section 3.1).

    At most `epochs` in total (E; by default `interval` times the run's `rounds`); rounds after that have
    `interval` again. The run provides `rounds` and `seed`.
    """
    total = interval * rounds if epochs is None else epochs
    if not 1 <= interval <= total:
        raise ValueError("interval must be at least 1, and epochs at least interval")
    listed = intervals(interval, total, np.random.default_rng(seed))
    return lambda round_number: listed[round_number - 1] if round_number <= len(listed) else interval


def intervals(f: int, epochs: int, rng: np.random.Generator) -> tuple[int, ...]:
    """FedRAD, Algorithm 1: floor(E / 2f) times f, then differences of random epochs, one of every f.

    DESIGN.md section 6, decision 6: each lies between 1 and 2f - 1, and they add up to E at most. (The +1 of
    Algorithm 1's lines 5 and 8 would break both, which section 3.1 states.)
    """
    fixed, windows = epochs // (2 * f), epochs // f
    chosen = [f * window + int(rng.integers(1, f + 1)) for window in range(fixed, windows)]
    differences = [later - earlier for earlier, later in pairwise([f * fixed, *chosen])]
    return (f,) * fixed + tuple(differences)


SCHEDULES: Registry[Callable[..., Schedule]] = Registry(
    "schedule", {"constant": constant, "random-intervals": random_intervals, "step-up": step_up}
)
