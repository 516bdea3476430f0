"""What devices measured in a round without training: per device, per tier, for all, by class; statistics."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.words import METRICS
from edge_server.config.units import UNKNOWN, clean, count_text, figure_text
from edge_server.observability.data_statistics import FEATURE_COLUMNS, LABEL_COLUMNS, as_json, as_texts
from edge_server.observability.report import figure_tables
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import DataStatistics, MeasuredDevice, RoundRecord

FAILED = 1
TIER, MAX_TIERS = "tier ", 5
"""A tier's row, and the tiers that have a column of the table by class, so that it fits a terminal."""
PROPORTIONS = frozenset({"accuracy"})
"""Figures that are shares of examples, so that one device's has an interval."""


def print_statistics(found: DataStatistics, output_format: str) -> None:
    if output_format == "json":
        print(json.dumps(as_json(found)))
        return
    console, texts = Console(), as_texts(found)
    features = _table("Data of the devices", FEATURE_COLUMNS, texts.features)
    features.caption = Text(texts.about)
    console.print("", features)
    if texts.labels:
        console.print("", _table("Examples of each class", LABEL_COLUMNS, texts.labels))


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    made = plain_table(title)
    made.add_column(columns[0], overflow="fold", min_width=12)
    add_numbers(made, *columns[1:])
    for name, *figures in rows:
        made.add_row(Text(name), *figures)
    return made


@dataclass(frozen=True)
class Row:
    """Figures of a device, a tier or all, on this many examples; `interval` is the leading one's at 95 %.

    `by_class` is empty where the devices have counted no classes.
    """

    name: str
    devices: int
    examples: int
    metrics: Mapping[str, float]
    interval: tuple[float, float] | None
    by_class: Mapping[str, figure_tables.ClassFigure] = field(default_factory=dict)


def print_measured(folder: Path, output_format: str, things: str = "examples") -> int:
    """Print the last round's measurements, for which `things` were counted; returns 1 if there are none."""
    lines = (folder / "history.jsonl").read_text().splitlines()
    measured = RoundRecord.model_validate_json(lines[-1]).measured if lines else {}
    if not measured:
        print("no device has measured anything: none holds out examples")
        return FAILED
    rows = list(rows_of(measured))
    if output_format == "json":
        print(json.dumps([asdict(row) for row in rows]))
    else:
        _print_table(rows)
        _print_classes(rows, things)
    return 0


def rows_of(measured: Mapping[str, MeasuredDevice]) -> Iterator[Row]:
    """A row per device, then per tier, then all; of a masked sum that is the only one."""
    for name, device in sorted(measured.items()):
        if device.devices == 1:
            yield _row(name, [device])
    tiers = sorted({device.tier for device in measured.values()})
    for tier in tiers if len(tiers) > 1 else ():
        yield _row(f"{TIER}{tier}", [device for device in measured.values() if device.tier == tier])
    yield _row("all", [*measured.values()])


def _row(name: str, devices: Sequence[MeasuredDevice]) -> Row:
    names = list(dict.fromkeys(key for device in devices for key in device.metrics if key in METRICS))
    metrics = {key: value for key in names if (value := _pool_metric(METRICS[key], devices)) is not None}
    examples = sum(device.examples for device in devices)
    lead = next(iter(metrics), None)
    interval = None if lead is None else _interval(METRICS[lead], metrics[lead], devices)
    count = sum(device.devices for device in devices)
    return Row(
        name,
        count,
        examples,
        metrics,
        interval,
        figure_tables.class_figures(figure_tables.sum_by_class(devices)),
    )


def _pool_metric(metric: Metric, devices: Sequence[MeasuredDevice]) -> float | None:
    known = [device for device in devices if metric.name in device.metrics]
    if (pooled := metric.pool_counts([device.counts for device in known])) is not None:
        return pooled
    values = [device.metrics[metric.name] for device in known]
    return metric.pool_values(values, [device.examples for device in known])


def _interval(metric: Metric, value: float, devices: Sequence[MeasuredDevice]) -> tuple[float, float] | None:
    if len(devices) < figure_tables.MIN_DEVICES:
        total = sum(device.examples for device in devices)
        return figure_tables.wilson(value, total) if metric.name in PROPORTIONS else None
    known = [device for device in devices if metric.name in device.metrics]
    values = [device.metrics[metric.name] for device in known]
    return figure_tables.over_devices(values, [device.examples for device in known], power=metric.power)


def _print_table(rows: Sequence[Row]) -> None:
    lead = next(name for row in rows for name in row.metrics)
    table = plain_table("Measured by the devices on data that they hold out")
    table.add_column("", overflow="fold", min_width=12)
    add_numbers(table, "devices", "examples", lead, "95 % interval")
    text = figure_text(METRICS[lead])
    for row in rows:
        counts = (count_text(row.devices), count_text(row.examples))
        interval = UNKNOWN if row.interval is None else " - ".join(map(text, row.interval))
        table.add_row(Text(clean(row.name)), *counts, text(row.metrics.get(lead)), interval)
    Console().print(table)


def _print_classes(rows: Sequence[Row], things: str) -> None:
    """All devices' `things` of each class, the share that is recognised, and that of each tier."""
    whole, tiers = rows[-1].by_class, [row for row in rows if row.name.startswith(TIER)]
    if not whole:
        return
    if len(tiers) > MAX_TIERS:
        tiers = []
    table = plain_table(f"By class: the share of its {things} that is recognised")
    table.add_column("", overflow="fold")
    add_numbers(table, things, "recall", "95 % interval", *(row.name for row in tiers))
    for name, figure in whole.items():
        shares = (_share(row.by_class[name].recall) if name in row.by_class else UNKNOWN for row in tiers)
        counted = (count_text(figure.examples), _share(figure.recall), _share_range(figure.interval))
        table.add_row(Text(clean(name)), *counted, *shares)
    console = Console()
    console.print()
    console.print(table)


def _share(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


def _share_range(interval: tuple[float, float] | None) -> str:
    return UNKNOWN if interval is None else f"{100 * interval[0]:.1f}-{interval[1]:.1%}"
