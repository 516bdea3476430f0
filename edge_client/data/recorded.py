"""The source `recorded:PATH`: the rows of a store that `edge-client record` writes."""

import sqlite3
from contextlib import closing
from pathlib import Path

from edge_client.data.dataset import LabelledData
from edge_client.data.example_store import TABLE
from edge_client.data.source_options import options_of
from edge_client.data.sqlite_table import SqliteTable
from edge_client.data.table_options import OPTIONS
from edge_client.data.table_source import read_table
from schemas.errors import ConfigError


def read_recorded(path: Path, text: str) -> LabelledData:
    """The examples of a store: rows, or windows of rows that were recorded one after the other.

    The options are those of a table; `label=label` learns the labels, and leaves out rows without one.
    """
    source = f"recorded:{path}"
    stated = options_of(text, OPTIONS, source=source)
    if "window" in stated and _keeps(path) == "reservoir":
        raise ConfigError(
            f"{source}: a reservoir keeps single rows, of which no window={stated['window']} can be made: "
            "record with --keep newest"
        )
    ignored = ",".join(filter(None, (stated.get("ignore"), "at,rank", "" if "label" in stated else "label")))
    usual = {"group": "series", "sequence": "seq", "id": "id", "unlabelled": "drop"}
    return read_table(SqliteTable(path, TABLE), {**usual, **stated, "ignore": ignored}, source=source)


def _keeps(path: Path) -> str:
    """Who stays in a store, by its last writer."""
    if not path.is_file():
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT value FROM settings WHERE name = 'keep'").fetchone()
    except sqlite3.Error as error:
        raise ConfigError(f"{path} is no store of examples: {error}; edge-client record makes one") from error
    return str(found[0]) if found else ""
