"""The kinds of tables by name, each a module that is imported once a source is of that kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.data.class_folders import parts_of
from edge_client.data.source_options import options_of

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData


@dataclass(frozen=True)
class TableKind:
    """A kind of table: the module beside this file that reads it, and the options that only this kind has.

    `open_table` of the module takes path and stated options, and returns a `Table` with all its options.
    """

    module: str
    options: tuple[str, ...] = ()


TABLES: Mapping[str, TableKind] = {
    "csv": TableKind("csv_table", ("delimiter", "decimal", "encoding")),
    "jsonl": TableKind("jsonl_table"),
    "parquet": TableKind("parquet_table"),
    "arrow": TableKind("arrow_table"),
    "feather": TableKind("arrow_table"),
    "sqlite": TableKind("sqlite_table", ("table",)),
    "recorded": TableKind("recorded"),
    "homeassistant": TableKind("home_assistant", ("entities", "every")),
    "influxdb": TableKind("influxdb", ("name", "every")),
    "senml": TableKind("senml", ("every",)),
    "edgeimpulse": TableKind("edge_impulse"),
    "mat": TableKind("mat_files"),
}


def read_source(kind: str, path: Path, text: str, *, split: str = "test") -> "tuple[LabelledData, bool]":
    """The examples of a table with the options in `text`, and whether it has a test part of its own.

    Raises `ConfigError` for wrong options, for a file of another kind, and for what `read_table` refuses.
    """
    # Imported here, as the kind: a small board needs the memory of those that it uses.
    from edge_client.data.tables.examples import read_table
    from edge_client.data.tables.options import OPTIONS

    source, of_kind = f"{kind}:{path}", TABLES[kind]
    options = options_of(text, (*OPTIONS, *of_kind.options), source=source)
    parts = parts_of(path, split)
    table, settled = import_module(f"{__package__}.{of_kind.module}").open_table(parts.chosen, options)
    return read_table(table, settled, source=source), parts.official
