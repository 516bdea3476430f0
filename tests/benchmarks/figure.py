"""What a benchmark finds: a figure beside its target, with how often it was taken and how far that spread."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Bound = Literal["at most", "at least"]


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    `values` are the repetitions, of which the median counts; without a `target` the figure is only told.
    `detail` says what was measured against what, `reason` what stands in the target's way, which is told
    where it is missed, or why nothing was measured (`values` is then empty).
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
        """The figure itself."""
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """Reached or missed; nothing where there is no target, or nothing was measured."""
        if not self.values:
            return "not measured"
        if self.target is None:
            return ""
        reached = self.median <= self.target if self.bound == "at most" else self.median >= self.target
        return "reached" if reached else "MISSED"

    def as_json(self) -> dict[str, Any]:
        """All of it, and what follows from it."""
        reported = asdict(self)
        if self.values:
            reported |= {"median": self.median, "lowest": min(self.values), "highest": max(self.values)}
        return reported | {"verdict": self.verdict}

    @classmethod
    def of_json(cls, reported: Mapping[str, Any]) -> Figure:
        """Back from `as_json`."""
        own = {known.name: reported[known.name] for known in fields(cls)}
        return cls(**{**own, "values": tuple(own["values"])})


def paired(
    pairs: int, floor: Callable[[], float], ours: Callable[[], float]
) -> tuple[tuple[float, ...], list[tuple[float, float]]]:
    """Take turns, so that a machine that is slower for a while favours nobody: ours over floor, per pair."""
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
    """What was measured, and why targets were missed or nothing was measured, a line per figure."""
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
