"""The source `recorded:PATH`: the rows of a store that `edge-client record` writes."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from edge_client.data.example_store import TABLE
from edge_client.data.tables.sqlite_table import SqliteTable
from edge_client.data.tables.table import Table
from schemas.errors import ConfigError


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a store, whose rows form windows with those that were recorded next to them.

    `label=label` learns the labels, and leaves out rows without one.
    """
    if "window" in options and _keeps(path) == "reservoir":
        raise ConfigError(
            f"a reservoir keeps single rows, of which no window={options['window']} can be made",
            place=path,
            remedy="record with --keep newest",
        )
    ignored = ",".join(
        filter(None, (options.get("ignore"), "at,rank", "" if "label" in options else "label"))
    )
    usual = {"group": "series", "sequence": "seq", "id": "id", "unlabelled": "drop"}
    return SqliteTable(path, TABLE), {**usual, **options, "ignore": ignored}


def _keeps(path: Path) -> str:
    """Who stays in a store, by its last writer."""
    if not path.is_file():
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT value FROM settings WHERE name = 'keep'").fetchone()
    except sqlite3.Error as error:
        raise ConfigError(
            f"{path} is not a store of examples", remedy="edge-client record makes one", quoted=error
        ) from error
    return str(found[0]) if found else ""
