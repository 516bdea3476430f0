"""Which devices are excluded when a round is undone: those whose updates made its model, if others remain."""

from collections.abc import Collection, Mapping
from statistics import median

OUTSTANDING = 10.0
"""An update stands out if a measure lies this many spreads above the median."""
SIGMA = 1.4826
LEAST_SPREAD = 0.1
"""Smallest spread, as a share of the median: equal measures would have a spread of 0."""

Measures = Mapping[str, float]
"""An update's measures by name; each grows with the update's effect on the model."""


def choose_suspects(measures: Mapping[str, Measures], able: Collection[str], fewest: int) -> tuple[str, ...]:
    """The devices to exclude, of those whose updates have these `measures`, sorted by name.

    All of them if at least `fewest` of the `able` devices remain. Otherwise those that stand out, or else
    the half with the highest scores; if that does not help, the other half remains for a second attempt.
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
    """How many spreads each update's most extreme measure lies above the round's median."""
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
    """The median, and the median absolute deviation from it scaled to a standard deviation."""
    usual = median(values)
    spread = SIGMA * median(abs(value - usual) for value in values)
    return usual, max(spread, LEAST_SPREAD * abs(usual), 1e-12)
