"""The sources that are tables, by name; all take the options of `table_options`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edge_client.data.arrow_table import open_arrow
from edge_client.data.class_folders import parts_of
from edge_client.data.csv_table import CSV_OPTIONS, csv_table
from edge_client.data.dataset import LabelledData
from edge_client.data.edge_impulse import open_edge_impulse
from edge_client.data.influx_table import open_influx
from edge_client.data.jsonl_table import open_jsonl
from edge_client.data.mat_files import open_mat
from edge_client.data.parquet_table import open_parquet
from edge_client.data.recording_table import RecordingTable
from edge_client.data.senml_table import open_senml
from edge_client.data.source_options import options_of
from edge_client.data.table_options import OPTIONS
from edge_client.data.table_source import read_table
from edge_client.data.tables import Table

Options = Mapping[str, str]


@dataclass(frozen=True)
class TableKind:
    """A kind of table: `open_table` takes path and stated options, and returns a table with all its options.

    `options` are those that only this kind has.
    """

    open_table: Callable[[Path, Options], tuple[Table, Options]]
    options: tuple[str, ...] = ()


def read_source(kind: str, path: Path, text: str, *, split: str = "test") -> tuple[LabelledData, bool]:
    """The examples of a table with the options in `text`, and whether it has a test part of its own.

    Raises `ConfigError` for wrong options, for a file of another kind, and for what `read_table` refuses.
    """
    source, of_kind = f"{kind}:{path}", TABLES[kind]
    options = options_of(text, (*OPTIONS, *of_kind.options), source=source)
    parts = parts_of(path, split)
    table, settled = of_kind.open_table(parts.chosen, options)
    data = read_table(table, settled, source=source)
    if isinstance(table, RecordingTable):
        data = replace(data, skipped=table.skipped or data.skipped)
    return data, parts.official


def _open_csv(path: Path, options: Options) -> tuple[Table, Options]:
    return csv_table(path, options), options


def _open_sqlite(path: Path, options: Options) -> tuple[Table, Options]:
    # Imported here, as below: sqlite3 takes 1 MB of a small board.
    from edge_client.data.sqlite_table import SqliteTable

    return SqliteTable(path, options.get("table", "")), options


def _open_recorded(path: Path, options: Options) -> tuple[Table, Options]:
    from edge_client.data.recorded import open_recorded

    return open_recorded(path, options)


def _open_home_assistant(path: Path, options: Options) -> tuple[Table, Options]:
    from edge_client.data.home_assistant import open_home_assistant

    return open_home_assistant(path, options)


TABLES: Mapping[str, TableKind] = {
    "csv": TableKind(_open_csv, CSV_OPTIONS),
    "jsonl": TableKind(open_jsonl),
    "parquet": TableKind(open_parquet),
    "arrow": TableKind(open_arrow),
    "feather": TableKind(open_arrow),
    "sqlite": TableKind(_open_sqlite, ("table",)),
    "recorded": TableKind(_open_recorded),
    "homeassistant": TableKind(_open_home_assistant, ("entities", "every")),
    "influxdb": TableKind(open_influx, ("name", "every")),
    "senml": TableKind(open_senml, ("every",)),
    "edgeimpulse": TableKind(open_edge_impulse),
    "mat": TableKind(open_mat),
}
