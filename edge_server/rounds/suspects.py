"""Who is left out when a round is given up: those whose updates made its model, as far as others are left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

OUTSTANDING = 10.0
"""An update whose measures lie so many usual spreads from the others' stands out."""
SIGMA = 1.4826
LEAST_SPREAD = 0.1
"""Of the median: where all are alike the spread is none."""

Measures = Mapping[str, float]
"""Of one update, by name: what is larger the larger its effect on the model is."""


def choose_suspects(measures: Mapping[str, Measures], able: Collection[str], fewest: int) -> tuple[str, ...]:
    """The devices to leave out, of those whose updates have these `measures`, by name.

    All of them where at least `fewest` of the `able` devices remain. Otherwise those that stand out from the
    others, or else the half that comes nearest to it; a second time the other half is left.
    """
    involved = sorted(measures)
    if len(set(able) - set(involved)) >= fewest:
        return tuple(involved)
    most = len(able) - fewest
    scores = _scores(measures)
    ranked = sorted((name for name in involved if name in set(able)), key=lambda name: (-scores[name], name))
    outstanding = [name for name in ranked if scores[name] > OUTSTANDING]
    chosen = outstanding or ranked[: (len(ranked) + 1) // 2]
    return tuple(sorted(chosen[: max(0, most)]))


def _scores(measures: Mapping[str, Measures]) -> dict[str, float]:
    """By how many usual spreads each update's farthest measure lies above the round's median."""
    names = sorted({name for each in measures.values() for name in each})
    known = {name: [each.get(name, 0.0) for each in measures.values()] for name in names}
    spreads = {name: _spread(values) for name, values in known.items()}
    return {
        device: max(
            ((each.get(name, 0.0) - usual) / spread for name, (usual, spread) in spreads.items()), default=0.0
        )
        for device, each in measures.items()
    }


def _spread(values: list[float]) -> tuple[float, float]:
    """The median, and the usual distance from it."""
    usual = median(values)
    spread = SIGMA * median(abs(value - usual) for value in values)
    return usual, max(spread, LEAST_SPREAD * abs(usual), 1e-12)
