"""Label positions without overlaps."""

from __future__ import annotations

from collections.abc import Sequence


def separate_labels(wanted: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move positions at least `gap` apart, within `low` to `high` if there is room; order is kept."""
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    placed = [0.0] * len(wanted)
    floor = low
    for index in order:
        placed[index] = max(wanted[index], floor)
        floor = placed[index] + gap
    ceiling = max(high, low + gap * (len(wanted) - 1))
    for index in reversed(order):
        placed[index] = min(placed[index], ceiling)
        ceiling = placed[index] - gap
    return placed
