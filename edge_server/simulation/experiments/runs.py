"""The usual kind of experiment: every cell is simulated with every seed, and tables compare the results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.data.tasks.learning_task import Metric
from edge_client.storage.atomic_files import write_synced
from edge_server.config.units import number_text, percent_text
from edge_server.observability.figures import ACCURACY, leading_metric
from edge_server.observability.report.charts import Chart, Series
from edge_server.observability.report.parallel_axes import ParallelAxes
from edge_server.simulation.experiments.cells import EndedRun, Plan
from edge_server.simulation.experiments.comparison import Result, comparison_tables, details, records, results
from edge_server.simulation.experiments.findings import Findings, Spread, csv_text, spread
from edge_server.simulation.experiments.runner import EndedRuns
from edge_server.simulation.experiments.sizes import mean_parameters
from edge_server.storage.records import RoundRecord
from edge_server.strategy.weighting.registry import WEIGHTINGS

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c7a00")
"""Okabe and Ito's palette for all kinds of colour vision, with a darker yellow."""
DASHES = ("-", "--", ":", "-.")
MAX_PER_LINE = 3


@dataclass(frozen=True)
class Curve:
    """The figure of one cell, of this metric, over the seeds, by round."""

    row: str
    column: str
    points: tuple[tuple[int, Spread], ...]
    metric: Metric = ACCURACY


def curves(done: Sequence[EndedRun]) -> list[Curve]:
    cells: dict[tuple[str, str], list[RoundRecord]] = {}
    for finished in done:
        records = cells.setdefault((finished.run.cell.row, finished.run.cell.column), [])
        records.extend(finished.history if not finished.failure else ())
    return [found for place, records in cells.items() if (found := _curve(*place, records)).points]


def _curve(row: str, column: str, records: Sequence[RoundRecord]) -> Curve:
    metric, by_round = leading_metric(records), dict[int, list[float]]()
    for record in records:
        if metric.name in record.test_metrics:
            by_round.setdefault(record.round, []).append(record.test_metrics[metric.name])
    return Curve(row, column, _points(by_round), metric)


def _points(by_round: Mapping[int, Sequence[float]]) -> tuple[tuple[int, Spread], ...]:
    spreads = ((number, spread(values)) for number, values in sorted(by_round.items()))
    return tuple((number, point) for number, point in spreads if point is not None)


def curve_records(found: Sequence[Curve]) -> list[dict[str, Any]]:
    """Lines of curves.csv."""
    return [
        {
            "row": curve.row,
            "column": curve.column,
            "round": number,
            "mean": f"{point.mean:.5f}",
            "std": "" if point.deviation is None else f"{point.deviation:.5f}",
            "seeds": point.count,
        }
        for curve in found
        for number, point in curve.points
    ]


def draw_curves(found: Sequence[Curve], path: Path, *, title: str) -> None:
    """Write a PNG with one panel per column; every row keeps its colour and dashes in all panels."""
    from edge_server.simulation.experiments.plots import DPI, plt

    columns = list(dict.fromkeys(curve.column for curve in found))
    rows = list(dict.fromkeys(curve.row for curve in found))
    across = min(MAX_PER_LINE, len(columns))
    down = -(-len(columns) // across)
    wide = max(6.4, 4.6 * across)
    legend = _legend_columns(wide, rows)
    size = (wide, 3.6 * down + 0.24 * -(-len(rows) // legend) + 0.7)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for axis, column in zip(axes.flat, columns, strict=False):
        _panel(axis, column, [curve for curve in found if curve.column == column], rows)
    for axis in list(axes.flat)[len(columns) :]:
        axis.set_visible(False)
    handles = {text: line for axis in axes.flat for line, text in zip(*_legend(axis), strict=True)}
    figure.legend(
        [handles[row] for row in rows], rows, loc="outside lower center", ncols=legend, frameon=False
    )
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)


def _legend_columns(wide: float, rows: Sequence[str]) -> int:
    """How many columns of the longest entry fit `wide` inches: a line sample, and 0.08 inches per letter."""
    return max(1, int(wide / (0.75 + 0.08 * max(map(len, rows), default=1))))


def _legend(axis: Any) -> tuple[list[Any], list[str]]:
    handles, labels = axis.get_legend_handles_labels()
    return handles, labels


def _panel(axis: Any, column: str, found: Sequence[Curve], rows: Sequence[str]) -> None:
    for curve in found:
        index = rows.index(curve.row)
        colour, dashes = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
        numbers = [number for number, _ in curve.points]
        scale = 100 if curve.metric.share else 1
        means = [scale * point.mean for _, point in curve.points]
        band = [scale * (point.deviation or 0.0) for _, point in curve.points]
        low = [mean - width for mean, width in zip(means, band, strict=True)]
        high = [mean + width for mean, width in zip(means, band, strict=True)]
        axis.fill_between(numbers, low, high, color=colour, alpha=0.15, linewidth=0)
        axis.plot(
            numbers,
            means,
            color=colour,
            linestyle=dashes,
            linewidth=1.6,
            marker="o" if len(numbers) == 1 else None,
            label=curve.row,
        )
    metric = found[0].metric
    axis.set(title=column, xlabel="round", ylabel=f"test {metric.name}" + (" (%)" if metric.share else ""))
    axis.title.set_fontsize(10)
    axis.locator_params("x", integer=True)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


CURVES_CSV, CURVES_PNG = "curves.csv", "curves.png"


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
    return (f"{metric.name} (%)", percent_text) if metric.share else (metric.name, number_text)


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
