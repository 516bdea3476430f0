"""Learning curves: the leading test figure by round, mean over seeds with a band of one deviation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.data.tasks.learning_task import Metric
from edge_server.observability.figures import ACCURACY, leading_metric
from edge_server.simulation.experiments.findings import Spread, spread
from edge_server.simulation.experiments.one_run import EndedRun
from edge_server.storage.records import RoundRecord

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
