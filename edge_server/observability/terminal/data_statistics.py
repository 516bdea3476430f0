"""Statistics of the devices' data as tables of the terminal, or as JSON."""

import json
from pathlib import Path

from rich.console import Console
from rich.text import Text

from edge_server.config.units import clean, count_text, percent_text
from edge_server.observability.data_statistics import (
    QUANTILES,
    FeatureRow,
    as_json,
    last_statistics,
    statistics_rows,
)
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.data_statistics import DataStatistics

FAILED = 1


def print_statistics(folder: Path, output_format: str) -> int:
    """Print what the run's last round has found; returns 1 if there is nothing."""
    found = last_statistics(folder)
    if found is None:
        print("no device has answered")
        return FAILED
    if output_format == "json":
        print(json.dumps(as_json(found)))
    else:
        _print_tables(found)
    return 0


def feature_cells(row: FeatureRow) -> list[str]:
    """The figures of a feature, in the order of `FEATURE_COLUMNS`."""
    numbers = (row.mean, row.std, row.least, *row.quantiles.values(), row.most, row.quantile_error)
    return [count_text(round(row.count)), *(f"{value:.5g}" for value in numbers)]


FEATURE_COLUMNS = ("values", "mean", "std", "least", *(f"{share:.0%}" for share in QUANTILES), "most", "+-")


def _print_tables(found: DataStatistics) -> None:
    console = Console()
    examples, devices = count_text(round(found.examples)), count_text(found.devices)
    table = plain_table(f"{examples} examples of {devices} devices")
    table.caption = Text("quantiles are off by at most +-, half a bin of their histogram")
    table.add_column("", overflow="fold", min_width=10)
    add_numbers(table, *FEATURE_COLUMNS)
    for row in statistics_rows(found):
        table.add_row(Text(row.name), *feature_cells(row))
    console.print(table)
    if found.labels:
        console.print(_label_table(found))


def _label_table(found: DataStatistics) -> object:
    table = plain_table("Labels")
    table.add_column("class", overflow="fold")
    add_numbers(table, "examples", "share")
    for name, count in found.labels.items():
        table.add_row(Text(clean(name)), count_text(round(count)), percent_text(count / found.examples))
    return table
