"""Axes of a chart: round tick values, and the mapping from values to drawing units."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to drawing units from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def value_axis(
    values: Sequence[float],
    *,
    start: float,
    end: float,
    from_zero: bool = False,
    highest: float | None = None,
) -> Axis:
    """An axis that begins and ends at a tick; the margin around a flat line stays below `highest`."""
    if from_zero or not values:
        values = [*values, 0.0]
    low, high = min(values), max(values)
    if high <= low:
        # A flat line gets a narrow margin; a flat line at zero lies on the bottom.
        band = abs(low) * 0.1 or 1.0
        low, high = (low - band if low else low), high + band
    if highest is not None:
        high = min(high, highest)
    step = nice_step((high - low) / 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(index * step for index in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], start, end, ticks)


def count_axis(values: Sequence[float], *, start: float, end: float) -> Axis:
    """An axis of whole numbers from the first to the last."""
    low, high = min(values, default=1), max(values, default=1)
    step = max(1.0, nice_step((high - low) / 6)) if high > low else 1.0
    ticks = tuple(index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1))
    margin = 0.5 if high <= low else 0.0
    return Axis(low - margin, high + margin, start, end, ticks)


def nice_step(rough: float) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that is at least `rough`."""
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next((power * factor for factor in (1, 2, 5) if power * factor >= rough * (1 - 1e-9)), power * 10)
