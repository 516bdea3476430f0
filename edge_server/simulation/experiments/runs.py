"""The usual kind of experiment: every cell is simulated with every seed, and tables compare the results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from edge_client.data.tasks.learning_task import Metric
from edge_client.storage.atomic_files import write_synced
from edge_server.observability.report.charts import Chart, Series
from edge_server.observability.report.curves import number, percent
from edge_server.observability.report.parallel_axes import ParallelAxes
from edge_server.simulation.experiments.cells import Plan
from edge_server.simulation.experiments.comparison import Result, comparison_tables, details, records, results
from edge_server.simulation.experiments.findings import Findings, csv_text
from edge_server.simulation.experiments.learning_curves import Curve, curve_records, curves, draw_curves
from edge_server.simulation.experiments.one_run import EndedRun, Simulate
from edge_server.simulation.experiments.runner import EndedRuns, Progress, run_all
from edge_server.simulation.experiments.sizes import mean_parameters
from edge_server.strategy.weighting.registry import WEIGHTINGS

CURVES_CSV, CURVES_PNG = "curves.csv", "curves.png"


def find_runs(
    plan: Plan, out: Path, *, simulate: Simulate, progress: Progress, parallel: int = 1
) -> Findings:
    return findings_of(plan, run_all(plan, out, simulate=simulate, progress=progress, parallel=parallel), out)


def findings_of(plan: Plan, outcome: EndedRuns, out: Path) -> Findings:
    """The comparison of the ended runs; the curves are written into `out`."""
    lines = curves(outcome.done)
    sizes = {finished.run.folder: mean_parameters(finished.run.cell.config()) for finished in outcome.done}
    found = results(plan, outcome.done, sizes)
    return Findings(
        tables=tuple(comparison_tables(found)),
        records=tuple(records(found)),
        details=details(found),
        pictures=_draw_curves(plan, out, lines),
        charts=_charts(lines),
        sweeps=_sweeps(found),
        notes=(*plan.notes, *comparison_limits(outcome.done)),
        failures=tuple(
            f"{ended.run.cell.row}, {ended.run.cell.column}, seed {ended.run.seed}: {ended.failure}"
            for ended in outcome.done
            if ended.failure
        ),
        interrupted=outcome.interrupted,
    )


def _draw_curves(plan: Plan, out: Path, found: Sequence[Curve]) -> tuple[str, ...]:
    if not found:
        return ()
    write_synced(out / CURVES_CSV, csv_text(curve_records(found)).encode())
    draw_curves(found, out / CURVES_PNG, title=plan.experiment.title)
    return (CURVES_PNG,)


def _charts(found: Sequence[Curve]) -> tuple[Chart, ...]:
    """A chart per column: each row's mean figure over the seeds by round."""
    by_column: dict[str, list[Curve]] = {}
    for curve in found:
        by_column.setdefault(curve.column, []).append(curve)
    return tuple(
        _chart(f"accuracy-{place}", column, own) for place, (column, own) in enumerate(by_column.items(), 1)
    )


def _chart(name: str, column: str, own: Sequence[Curve]) -> Chart:
    metric = own[0].metric
    series = (Series(curve.row, tuple((r, point.mean) for r, point in curve.points)) for curve in own)
    unit, text = _unit(metric)
    return Chart(name, f"Test {metric.name}, {column}", unit, tuple(series), text)


def _unit(metric: Metric) -> tuple[str, Callable[[float], str]]:
    return (f"{metric.name} (%)", percent) if metric.share else (metric.name, number)


def _sweeps(found: Sequence[Result]) -> tuple[ParallelAxes, ...]:
    """Per column of a sweep, the swept settings of each row against its mean figure."""
    swept = [result for result in found if result.cell.swept]
    columns = list(dict.fromkeys(result.cell.column for result in swept))
    drawn = (
        _sweep(f"sweep-{place}", [result for result in swept if result.cell.column == column])
        for place, column in enumerate(columns, 1)
    )
    return tuple(chart for chart in drawn if chart.lines)


def _sweep(name: str, own: Sequence[Result]) -> ParallelAxes:
    first = own[0]
    several = len({result.cell.swept for result in own}) < len(own)
    keys = tuple(word.partition("=")[0] for word in first.cell.swept)
    lines = []
    for result in own:
        values = tuple(word.partition("=")[2] for word in result.cell.swept)
        row = result.cell.row.removesuffix(", " + ", ".join(result.cell.swept))
        if (average := result.over_seeds(lambda run: run.average)) is not None:
            lines.append(((row, *values) if several else values, average.mean))
    unit, text = _unit(first.metric)
    title = f"Test {first.metric.name} by setting, {first.cell.column}"
    return ParallelAxes(name, title, ("row", *keys) if several else keys, unit, tuple(lines), text)


# What a comparison cannot show: runs whose weights, or selection scores, hardly differ from uniform ones.

UNIFORM_MARGIN = 0.05  # Weights within this share of their mean count as uniform


def comparison_limits(done: Iterable[EndedRun]) -> list[str]:
    """A sentence per row and column whose weights or scores are uniform in all runs."""
    weights: dict[tuple[str, str], bool] = {}
    scores: dict[tuple[str, str], bool] = {}
    for ended in done:
        if not ended.history:
            continue
        cell = ended.run.cell
        place = (cell.row, cell.column)
        weighed = [record.weights for record in ended.history if len(record.weights) > 1]
        if weighed and not WEIGHTINGS.traits(cell.config().strategy.weighting.name).is_plain:
            weights[place] = weights.get(place, True) and all(map(is_uniform, weighed))
        if scored := [record.attention for record in ended.history if len(record.attention) > 1]:
            scores[place] = scores.get(place, True) and all(map(is_uniform, scored))
    return [
        f"{row}, {column}: all {name} lie within {UNIFORM_MARGIN:.0%} of uniform: "
        f"what {effect} does cannot be seen at this length."
        for by_place, name, effect in (
            (weights, "weights", "the weighting"),
            (scores, "selection scores", "the selection"),
        )
        for (row, column), uniform in by_place.items()
        if uniform
    ]


def is_uniform(values: Mapping[str, float]) -> bool:
    """Whether all values lie within `UNIFORM_MARGIN` of their mean."""
    mean = sum(values.values()) / len(values)
    return all(abs(value - mean) <= UNIFORM_MARGIN * abs(mean) for value in values.values())
