"""A league: every row against one reference row, setting by setting, with intervals over paired seeds.

Rows of one column and seed share data, partition and fleet, so differences are paired by seed.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edge_client.data.tasks.learning_task import Metric
from edge_server.config.units import bytes_text
from edge_server.observability.figures import ACCURACY
from edge_server.simulation.experiments import cells, comparison, runner, runs
from edge_server.simulation.experiments.findings import NOTHING, Findings, Table, spread, without_empty
from edge_server.simulation.experiments.league_scores import (
    ABOVE,
    BELOW,
    LEVEL,
    MEASURES,
    Difference,
    Measure,
    Score,
    Scores,
    client_accuracies,
    difference,
    league_scores,
)
from edge_server.simulation.experiments.sizes import tier_sizes


def find_league(plan: cells.Plan, outcome: runner.EndedRuns, out: Path) -> Findings:
    found = runs.findings_of(plan, outcome, out)
    scores = league_scores(
        outcome.done,
        average_rounds=plan.experiment.average_rounds,
        average_share=plan.experiment.average_share,
        figures=plan.experiment.figures,
        clients=lambda ended: client_accuracies(ended.run.config, cells.run_path(ended.run, out)),
    )
    reference = plan.experiment.reference
    failures: dict[tuple[str, str], list[str]] = {}
    for ended in outcome.done:
        failures.setdefault(_place(ended), []).extend([ended.failure] if ended.failure else [])
    sizes = {(cell.row, cell.column): tier_sizes(cell.config()) for cell in plan.cells}
    macs = {place: statistics.fmean(size.macs for size in found) for place, found in sizes.items()}
    columns = list(dict.fromkeys(cell.column for cell in plan.cells))
    return replace(
        found,
        tables=(
            *_with_paper_numbers(plan, found),
            *(column_table(scores, column, reference, macs, failures) for column in columns),
            *(matrix(scores, columns, name) for name in MEASURES),
        ),
        details={**found.details, "scores": _details(scores)},
        notes=(*found.notes, *verdicts(scores, columns, reference)),
    )


def _place(ended: cells.EndedRun) -> tuple[str, str]:
    return ended.run.cell.row, ended.run.cell.column


def _with_paper_numbers(plan: cells.Plan, found: Findings) -> list[Table]:
    """The usual tables, of the global model, where a paper has numbers for a cell."""
    if all(cell.paper is None for cell in plan.cells):
        return []
    return [replace(table, caption=f"{table.caption}: with the paper's numbers") for table in found.tables]


def _details(scores: Scores) -> list[dict[str, Any]]:
    return [
        {"row": row, "column": column, "seed": seed, "whole": score.whole, "tiers": score.tiers}
        for (row, column), by_seed in scores.items()
        for seed, score in by_seed.items()
    ]


def column_table(
    scores: Scores,
    column: str,
    reference: str,
    macs: Mapping[tuple[str, str], float],
    failures: Mapping[tuple[str, str], Sequence[str]] = MappingProxyType({}),
) -> Table:
    """One setting: every row's accuracies and costs, and its difference to the reference.

    A row whose runs all failed has the reasons alone.
    """
    rows = list(dict.fromkeys(row for row, of in (*scores, *failures) if of == column))
    own = [score for row in rows for score in scores.get((row, column), {}).values()]
    tiers = max((len(score.tiers) for score in own), default=0)
    targets = sorted({target for score in own for target in score.reached})
    metric = next((score.metric for score in own), ACCURACY)
    further = list(dict.fromkeys(each for score in own for each in score.further))
    heads = (
        "",
        f"whole model ({comparison.unit(metric)})",
        f"mean tier ({comparison.unit(metric)})",
        *(f"whole model ({comparison.unit(each)})" for each in further),
        *(f"tier {number} ({comparison.unit(metric)})" for number in range(1, tiers + 1)),
        f"worst tier ({comparison.unit(metric)})",
        "mean client (%)",
        "worst client (%)",
        *(f"rounds to {f'{100 * target:g} %' if metric.share else f'{target:g}'}" for target in targets),
        "up",
        "down",
        "MACs (M)",
        *(f"{name} over {reference}" for name in MEASURES),
        "remarks",
    )
    lines = [
        (
            *_row(scores, row, column, reference, tiers, targets, further, macs=macs.get((row, column), 0.0)),
            _remarks(scores.get((row, column), {}), failures.get((row, column), ())),
        )
        for row in rows
    ]
    return without_empty(Table(column, heads, tuple(lines)))


def _row(
    scores: Scores,
    row: str,
    column: str,
    reference: str,
    tiers: int,
    targets: Sequence[float],
    further: Sequence[Metric],
    *,
    macs: float,
) -> tuple[str, ...]:
    own = scores.get((row, column), {})
    metric = next((score.metric for score in own.values()), ACCURACY)

    def over_seeds(measure: Measure) -> str:
        return comparison.spread_text(metric, spread([measure(score) for score in own.values()]))

    def tier(number: int) -> Measure:
        return lambda score: score.tiers[number] if number < len(score.tiers) else None

    against = [_against(scores, row, column, reference, measure) for measure in MEASURES.values()]
    return (
        row,
        *(over_seeds(measure) for measure in MEASURES.values()),
        *(
            comparison.spread_text(each, spread([score.further.get(each) for score in own.values()]))
            for each in further
        ),
        *(over_seeds(tier(number)) for number in range(tiers)),
        over_seeds(lambda score: score.worst_tier),
        over_seeds(lambda score: score.mean_client),
        over_seeds(lambda score: score.worst_client),
        *(_rounds([score.reached.get(target) for score in own.values()]) for target in targets),
        _mean_bytes([score.uplink_bytes for score in own.values()]),
        _mean_bytes([score.downlink_bytes for score in own.values()]),
        f"{macs / 1e6:.2f}",
        *(NOTHING if found is None or row == reference else str(found) for found in against),
    )


def _rounds(reached: Sequence[int | None]) -> str:
    """The mean over the seeds that reached the target, and how many did."""
    known = [number for number in reached if number is not None]
    if not known:
        return "not reached" if reached else NOTHING
    some = f" ({len(known)} of {len(reached)})" if len(known) < len(reached) else ""
    return f"{statistics.fmean(known):.0f}{some}"


def _mean_bytes(sent: Sequence[int]) -> str:
    return bytes_text(statistics.fmean(sent)) if sent else NOTHING


def _remarks(own: Mapping[int, Score], failures: Sequence[str]) -> str:
    diverged = sum(score.diverged for score in own.values())
    return "; ".join([*([f"{diverged} rounds diverged"] if diverged else []), *failures])


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
    counts = _counts(scores, columns, row, other, measure).values()
    return " / ".join(map(str, counts)) if any(counts) else NOTHING


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
