"""The kinds of tables by name, each a module that is imported once a source is of that kind."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.data.source_options import options_of

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData


@dataclass(frozen=True)
class TableKind:
    """A kind of table: the module beside this file that reads it, and the options that only this kind has.

    `open_table` of the module takes path and stated options, and returns a `Table` with all its options.
    `argument` is how path and options are written, `summary` and `details` are those of a `SourceKind`.
    """

    module: str
    summary: str
    details: str = ""
    argument: str = "PATH?label=COLUMN"
    options: tuple[str, ...] = ()
    is_database: bool = False


_EXTRA = "`pip install 'edge-federation[{}]'`"
_TABLE, _READINGS, _SIGNALS = (
    f"[{text}](../guides/data/tasks.md#{anchor})"
    for text, anchor in (
        ("options", "tables"),
        ("readings", "readings-of-many-sensors"),
        ("files", "files-with-several-signals"),
    )
)
TABLES: Mapping[str, TableKind] = {
    "csv": TableKind(
        "csv_table",
        "rows of a table, or windows of rows: csv:room.csv?label=open&window=60&stride=30",
        _TABLE,
        options=("delimiter", "decimal", "encoding"),
    ),
    "jsonl": TableKind(
        "jsonl_table", "the same from JSON lines", "an object for each row; `a.b` is `b` inside `a`"
    ),
    "parquet": TableKind("parquet_table", "the same from a Parquet file", _EXTRA.format("parquet")),
    "arrow": TableKind("arrow_table", "the same from an Arrow file", _EXTRA.format("parquet")),
    "feather": TableKind("arrow_table", "the same from a Feather file", _EXTRA.format("parquet")),
    "sqlite": TableKind(
        "sqlite_table",
        "the same from an SQLite file",
        "`table=NAME` if it has several tables",
        options=("table",),
        is_database=True,
    ),
    "recorded": TableKind(
        "recorded",
        "what `edge-client record PATH` records from MQTT topics",
        "[recording](../guides/data/growing-data.md#recording-sensors)",
        "PATH?label=label",
        is_database=True,
    ),
    "homeassistant": TableKind(
        "home_assistant",
        "Home Assistant's recorder, a column for each entity",
        _READINGS,
        "PATH?entities=A,B&label=C",
        ("entities", "every"),
        is_database=True,
    ),
    "influxdb": TableKind(
        "influxdb",
        "annotated CSV of InfluxDB 2, a column for each field",
        f"exports and tables of version 3 are plain `csv:` and `parquet:`; {_READINGS}",
        options=("name", "every"),
    ),
    "senml": TableKind(
        "senml",
        "SenML in JSON or CBOR, a column for each name",
        f"{_EXTRA.format('cbor')}; {_READINGS}",
        "PATH?label=NAME",
        ("every",),
    ),
    "edgeimpulse": TableKind(
        "edge_impulse",
        "files with several signals, as Edge Impulse exports them",
        f"JSON or CBOR in its data acquisition format; {_SIGNALS}",
        "PATH?label=label",
    ),
    "mat": TableKind(
        "mat_files",
        "MATLAB files, a sub-folder for each class",
        f"all versions, {_EXTRA.format('mat')}; {_SIGNALS}",
        "FOLDER?label=label",
    ),
}


def read_source(kind: str, path: Path, text: str, *, split: str = "test") -> "tuple[LabelledData, bool]":
    """The examples of a table with the options in `text`, and whether it has a test part of its own.

    Raises `ConfigError` for wrong options, for a file of another kind, and for what `read_table` refuses.
    """
    # Imported here, as the kind: a small board needs the memory of those that it uses.
    from edge_client.data.class_folders import parts_of
    from edge_client.data.tables.examples import read_table
    from edge_client.data.tables.options import OPTIONS

    source, of_kind = f"{kind}:{path}", TABLES[kind]
    options = options_of(text, (*OPTIONS, *of_kind.options), source=source)
    parts = parts_of(path, split)
    table, settled = import_module(f"{__package__}.{of_kind.module}").open_table(parts.chosen, options)
    return read_table(table, settled, source=source), parts.official
