"""Statistics of the devices' data as tables of the terminal, or as JSON."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edge_server.observability.data_statistics import FEATURE_COLUMNS, LABEL_COLUMNS, as_json, as_texts
from edge_server.observability.terminal.tables import add_numbers, plain_table
from edge_server.storage.records import DataStatistics


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
