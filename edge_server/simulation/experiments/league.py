"""A league: every row against one reference row, setting by setting, with intervals over paired seeds.

Rows of one column and seed share data, partition and fleet, so differences are paired by seed. Intervals are
95 % intervals of the mean difference by bootstrap over the seeds (Efron 1979, the percentile method).
"""

import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edge_server.config.units import bytes_text
from edge_server.observability.report.measures import averaging_window
from edge_server.simulation.experiments.cells import Plan
from edge_server.simulation.experiments.comparison import percent
from edge_server.simulation.experiments.findings import NOTHING, Findings, Table, spread, without_empty
from edge_server.simulation.experiments.runner import EndedRun, Progress, Simulate, run_all
from edge_server.simulation.experiments.runs import findings_of
from edge_server.simulation.experiments.sizes import tier_sizes
from edge_server.storage.records import RoundRecord

EXACT = 6
"""With this number of seeds or fewer, every resample is computed; with more, `DRAWN` are drawn."""
DRAWN = 10_000
ABOVE, LEVEL, BELOW = "above", "level with", "below"


@dataclass(frozen=True)
class Score:
    """One run: accuracies 0 to 1, means over the last tested rounds; bytes sent in all rounds.

    `whole` is the global model's accuracy; None if no tier trains the full model. `tiers` are the accuracies
    of the tiers' own sub-models, the weakest first.
    """

    whole: float | None
    tiers: tuple[float, ...]
    uplink_bytes: int
    downlink_bytes: int

    @property
    def mean_tier(self) -> float | None:
        """The mean over the tiers."""
        return statistics.fmean(self.tiers) if self.tiers else None

    @property
    def worst_tier(self) -> float | None:
        """The accuracy of the worst tier."""
        return min(self.tiers, default=None)


Scores = Mapping[tuple[str, str], Mapping[int, Score]]
"""By row and column, then by seed."""
Measure = Callable[[Score], float | None]
MEASURES: Mapping[str, Measure] = {
    "whole model": lambda score: score.whole,
    "mean tier": lambda score: score.mean_tier,
}


@dataclass(frozen=True)
class Difference:
    """The mean difference of two rows over the seeds that both have, and its interval, in points."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Whether the first row is above or below the second, or the interval holds 0."""
        return ABOVE if self.low > 0 else BELOW if self.high < 0 else LEVEL

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def find_league(plan: Plan, out: Path, *, simulate: Simulate, progress: Progress) -> Findings:
    """Run the missing runs, and compare every row with the reference."""
    outcome = run_all(plan, out, simulate=simulate, progress=progress)
    found = findings_of(plan, outcome, out)
    scores = league_scores(
        outcome.done,
        average_rounds=plan.experiment.average_rounds,
        average_share=plan.experiment.average_share,
    )
    reference = plan.experiment.reference
    sizes = {(cell.row, cell.column): tier_sizes(cell.config()) for cell in plan.cells}
    macs = {place: statistics.fmean(size.macs for size in found) for place, found in sizes.items()}
    columns = list(dict.fromkeys(cell.column for cell in plan.cells))
    return replace(
        found,
        tables=(
            *_beside_the_paper(plan, found),
            *(column_table(scores, column, reference, macs) for column in columns),
            *(matrix(scores, columns, name) for name in MEASURES),
        ),
        details={**found.details, "scores": _details(scores)},
        notes=(*found.notes, *verdicts(scores, columns, reference)),
    )


def _beside_the_paper(plan: Plan, found: Findings) -> tuple[Table, ...]:
    """The usual tables, of the global model, where a paper has numbers for a cell."""
    if all(cell.paper is None for cell in plan.cells):
        return ()
    return tuple(replace(table, caption=f"{table.caption}: beside the paper") for table in found.tables)


def _details(scores: Scores) -> list[dict[str, Any]]:
    """Every run's accuracies, for results.json."""
    return [
        {"row": row, "column": column, "seed": seed, "whole": score.whole, "tiers": score.tiers}
        for (row, column), by_seed in scores.items()
        for seed, score in by_seed.items()
    ]


def league_scores(
    done: Iterable[EndedRun], *, average_rounds: int, average_share: float | None = None
) -> dict[tuple[str, str], dict[int, Score]]:
    """The score of every finished run, over its last `average_rounds` rounds or that share of them."""
    scores: dict[tuple[str, str], dict[int, Score]] = {}
    for ended in done:
        if ended.history and not ended.failure:
            cell, config = ended.run.cell, ended.run.cell.config()
            window = averaging_window(
                config.federation.rounds, average_rounds=average_rounds, average_share=average_share
            )
            full = 0.0 in config.tiers.levels
            score = _score(ended.history, window=window, full=full)
            scores.setdefault((cell.row, cell.column), {})[ended.run.seed] = score
    return scores


def _score(history: Sequence[RoundRecord], *, window: int, full: bool) -> Score:
    last = [record for record in history if record.round > history[-1].round - window]
    whole = [record.test_accuracy for record in last if record.test_accuracy is not None]
    tested = [record.tier_accuracy for record in last if record.tier_accuracy]
    tiers = (
        [statistics.fmean(accuracies[tier] for accuracies in tested) for tier in sorted(tested[-1])]
        if tested
        else []
    )
    return Score(
        statistics.fmean(whole) if whole and full else None,
        tuple(tiers),
        sum(record.uplink_bytes for record in history),
        sum(record.downlink_bytes for record in history),
    )


def difference(
    first: Mapping[int, Score], second: Mapping[int, Score], measure: Measure
) -> Difference | None:
    """The first row minus the second, in points; None without a common seed that has the measure."""
    pairs = [(measure(first[seed]), measure(second[seed])) for seed in sorted(first.keys() & second.keys())]
    values = [100 * (one - other) for one, other in pairs if one is not None and other is not None]
    if not values:
        return None
    low, high = interval(values)
    return Difference(statistics.fmean(values), low, high)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of `values`, the same in every call."""
    count = len(values)
    if count <= EXACT:
        places = np.array(list(itertools.product(range(count), repeat=count)))
    else:
        places = np.random.default_rng(0).integers(count, size=(DRAWN, count))
    means = np.array(values)[places].mean(axis=1)
    # Outwards to the next mean: with two seeds the interval is that of both values.
    return (
        float(np.quantile(means, 0.025, method="lower")),
        float(np.quantile(means, 0.975, method="higher")),
    )


def column_table(scores: Scores, column: str, reference: str, macs: Mapping[tuple[str, str], float]) -> Table:
    """One setting: every row's accuracies and costs, and its difference to the reference."""
    rows = [row for row, of in scores if of == column]
    tiers = max((len(score.tiers) for row in rows for score in scores[row, column].values()), default=0)
    heads = (
        "",
        "whole model (%)",
        "mean tier (%)",
        *(f"tier {number} (%)" for number in range(1, tiers + 1)),
        "worst tier (%)",
        "up",
        "down",
        "MACs (M)",
        *(f"{name} over {reference}" for name in MEASURES),
    )
    lines = [
        _row(scores, row, column, reference, tiers=tiers, macs=macs.get((row, column), 0.0)) for row in rows
    ]
    return without_empty(Table(column, heads, tuple(lines)))


def _row(
    scores: Scores, row: str, column: str, reference: str, *, tiers: int, macs: float
) -> tuple[str, ...]:
    own = scores[row, column]

    def over_seeds(measure: Measure) -> str:
        return percent(spread([measure(score) for score in own.values()]))

    def tier(number: int) -> Measure:
        return lambda score: score.tiers[number] if number < len(score.tiers) else None

    against = [_against(scores, row, column, reference, measure) for measure in MEASURES.values()]
    return (
        row,
        *(over_seeds(measure) for measure in MEASURES.values()),
        *(over_seeds(tier(number)) for number in range(tiers)),
        over_seeds(lambda score: score.worst_tier),
        bytes_text(statistics.fmean(score.uplink_bytes for score in own.values())),
        bytes_text(statistics.fmean(score.downlink_bytes for score in own.values())),
        f"{macs / 1e6:.2f}",
        *(NOTHING if found is None or row == reference else str(found) for found in against),
    )


def _against(scores: Scores, row: str, column: str, other: str, measure: Measure) -> Difference | None:
    return difference(scores.get((row, column), {}), scores.get((other, column), {}), measure)


def matrix(scores: Scores, columns: Sequence[str], name: str) -> Table:
    """Each row against each other: settings above, level and below, for instance `3 / 1 / 0`."""
    rows = list(dict.fromkeys(row for row, _ in scores))
    lines = [(row, *(_tally(scores, columns, row, other, MEASURES[name]) for other in rows)) for row in rows]
    return Table(f"Settings above / level / below, {name}", ("", *rows), tuple(lines))


def _tally(scores: Scores, columns: Sequence[str], row: str, other: str, measure: Measure) -> str:
    if row == other:
        return NOTHING
    counts = _counts(scores, columns, row, other, measure)
    return (
        " / ".join(str(counts[word]) for word in (ABOVE, LEVEL, BELOW)) if any(counts.values()) else NOTHING
    )


def _counts(scores: Scores, columns: Sequence[str], row: str, other: str, measure: Measure) -> dict[str, int]:
    found = [_against(scores, row, column, other, measure) for column in columns]
    known = [difference.verdict for difference in found if difference is not None]
    return {word: known.count(word) for word in (ABOVE, LEVEL, BELOW)}


def verdicts(scores: Scores, columns: Sequence[str], reference: str) -> list[str]:
    """What the intervals carry, a sentence per row and measure."""
    lines = []
    for row in dict.fromkeys(row for row, _ in scores):
        if row == reference:
            continue
        parts = []
        for name, measure in MEASURES.items():
            counts = _counts(scores, columns, reference, row, measure)
            total = sum(counts.values())
            if total:
                words = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
                parts.append(f"{name}: {words} of {total} settings")
        if parts:
            lines.append(f"{reference} against {row}: {'; '.join(parts)}.")
    return lines
