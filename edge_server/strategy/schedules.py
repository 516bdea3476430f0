"""Schedules: a value for each round, counted from 1."""

from __future__ import annotations

from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(value: float = 1.0) -> Schedule:
    """The same value in every round."""
    return lambda round_number: value


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": constant,
}
