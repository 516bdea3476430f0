"""The sources that are tables, by name; all take the options of `table_options`."""

from collections.abc import Callable, Mapping
from pathlib import Path

from edge_client.data.dataset import LabelledData
from edge_client.data.table_source import read_csv, read_parquet, read_sqlite


def _read_recorded(path: Path, text: str) -> LabelledData:
    # Imported here: sqlite3 takes 1 MB of a small board.
    from edge_client.data.recorded import read_recorded

    return read_recorded(path, text)


TABLES: Mapping[str, Callable[[Path, str], LabelledData]] = {
    "csv": read_csv,
    "parquet": read_parquet,
    "sqlite": read_sqlite,
    "recorded": _read_recorded,
}
