"""A result of a benchmark: a figure with its target, its repetitions and their spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Bound = Literal["at most", "at least"]


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    `values` are the repetitions; their median is the figure. Without a `target` the figure is only reported.
    `detail` describes the measurement, `reason` explains a missed target, or why nothing was measured
    (`values` is then empty).
    """

    area: str
    name: str
    unit: str
    values: tuple[float, ...]
    target: float | None = None
    bound: Bound = "at most"
    detail: str = ""
    reason: str = ""
    raw: dict[str, Any] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The value of the figure."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """Whether the target is reached; empty without a target."""
        if not self.values:
            return "not measured"
        if self.target is None:
            return ""
        reached = self.median <= self.target if self.bound == "at most" else self.median >= self.target
        return "reached" if reached else "MISSED"

    def as_json(self) -> dict[str, Any]:
        """All fields and the values derived from them."""
        reported = asdict(self)
        if self.values:
            reported |= {"median": self.median, "lowest": min(self.values), "highest": max(self.values)}
        return reported | {"verdict": self.verdict}

    @classmethod
    def of_json(cls, reported: Mapping[str, Any]) -> Figure:
        """Rebuild a figure from `as_json`."""
        own = {known.name: reported[known.name] for known in fields(cls)}
        return cls(**{**own, "values": tuple(own["values"])})


def paired(
    pairs: int, floor: Callable[[], float], ours: Callable[[], float]
) -> tuple[tuple[float, ...], list[tuple[float, float]]]:
    """Ours over floor, per pair; both take turns, so that a temporarily slower machine favours neither."""
    taken = [(floor(), ours()) for _ in range(pairs)]
    return tuple(mine / its for its, mine in taken), taken


def table(figures: Sequence[Figure]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| area | figure | median | lowest to highest | n | target | |",
        "| --- | --- | ---: | --- | ---: | --- | --- |",
    ]
    for figure in figures:
        wanted = f"{figure.bound} {_number(figure.target)}" if figure.target is not None else ""
        taken = (
            [_number(v) for v in (figure.median, min(figure.values), max(figure.values))]
            if figure.values
            else [""] * 3
        )
        unit = f" {figure.unit}" if figure.unit and figure.values else ""
        spread = f"{taken[1]} to {taken[2]}" if len(figure.values) > 1 else ""
        lines.append(
            f"| {figure.area} | {figure.name} | {taken[0]}{unit} | {spread} | {len(figure.values)} "
            f"| {wanted} | {figure.verdict} |"
        )
    return "\n".join(lines)


def remarks(figures: Sequence[Figure]) -> str:
    """A line per figure: what was measured, and why a target was missed or nothing was measured."""
    described = [
        (figure, "; ".join(part for part in (figure.detail, _reason(figure)) if part)) for figure in figures
    ]
    return "\n".join(f"- **{figure.area}, {figure.name}**: {text}" for figure, text in described if text)


def _reason(figure: Figure) -> str:
    if figure.verdict == "MISSED" and figure.reason:
        return f"MISSED: {figure.reason}"
    return figure.reason if not figure.values else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
