"""Statistics of the devices' data as tables of the terminal, or as JSON."""

import json

from rich.console import Console
from rich.text import Text

from edge_server.config.units import clean, count_text, percent_text
from edge_server.observability.data_statistics import (
    ERROR,
    FEATURE_COLUMNS,
    as_json,
    feature_cells,
    statistics_rows,
)
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.data_statistics import DataStatistics


def print_statistics(found: DataStatistics, output_format: str) -> None:
    """Print all figures."""
    if output_format == "json":
        print(json.dumps(as_json(found)))
    else:
        _print_tables(found)


def _print_tables(found: DataStatistics) -> None:
    console = Console()
    examples, devices = count_text(round(found.examples)), count_text(found.devices)
    table = plain_table(f"{examples} examples of {devices} devices")
    table.caption = Text(ERROR)
    table.add_column("feature", overflow="fold", min_width=13)
    add_numbers(table, *FEATURE_COLUMNS)
    for row in statistics_rows(found):
        table.add_row(Text(clean(row.name)), *feature_cells(row))
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
