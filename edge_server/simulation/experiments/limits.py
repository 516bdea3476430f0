"""What a comparison cannot show: runs whose weights, or selection scores, hardly differ from uniform ones."""

from collections.abc import Iterable, Mapping, Sequence

from edge_server.simulation.experiments.one_run import EndedRun
from edge_server.storage.records import RoundRecord
from edge_server.strategy.weighting.registry import PLAIN

MARGIN = 0.05
"""Weights within this share of their mean count as uniform."""


def limits(done: Iterable[EndedRun]) -> list[str]:
    """A sentence per row and column whose weights or scores are uniform in all runs."""
    weights: dict[tuple[str, str], bool] = {}
    scores: dict[tuple[str, str], bool] = {}
    for ended in done:
        if not ended.history:
            continue
        cell = ended.run.cell
        place = (cell.row, cell.column)
        if cell.config().strategy.weighting.name not in PLAIN:
            found = [record.weights for record in ended.history if len(record.weights) > 1]
            weights[place] = weights.get(place, True) and all(map(is_uniform, found))
        if known := _scores(ended.history):
            scores[place] = scores.get(place, True) and all(map(is_uniform, known))
    return [
        f"{row}, {column}: all {name} lie within {MARGIN:.0%} of uniform: "
        f"what {effect} does cannot be seen at this length."
        for by_place, name, effect in (
            (weights, "weights", "the weighting"),
            (scores, "selection scores", "the selection"),
        )
        for (row, column), uniform in by_place.items()
        if uniform
    ]


def _scores(history: Sequence[RoundRecord]) -> list[Mapping[str, float]]:
    return [record.attention for record in history if len(record.attention) > 1]


def is_uniform(values: Mapping[str, float]) -> bool:
    """Whether all values lie within `MARGIN` of their mean."""
    mean = sum(values.values()) / len(values)
    return all(abs(value - mean) <= MARGIN * abs(mean) for value in values.values())
