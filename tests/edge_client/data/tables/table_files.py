"""Not tests: the same table as a file of each kind, and as a source."""

import csv
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source

KINDS = ("csv", "parquet", "sqlite")


def write_table(kind: str, folder: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    """The file with these columns; None is an empty cell, or no value."""
    path = folder / f"table.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([names, *rows])
    elif kind == "parquet":
        import pyarrow
        from pyarrow import parquet

        columns = map(list, zip(*rows, strict=True))
        parquet.write_table(pyarrow.table(dict(zip(names, columns, strict=True))), path)
    else:
        with closing(sqlite3.connect(path)) as made, made:
            made.execute(f"CREATE TABLE readings ({', '.join(map(repr, names))})")
            made.executemany(f"INSERT INTO readings VALUES ({', '.join('?' * len(names))})", rows)
    return path


def read_table(
    kind: str, folder: Path, names: Sequence[str], rows: Sequence[Sequence[Any]], options: str
) -> LabelledData:
    """The examples of this table with these options."""
    return load_source(f"{kind}:{write_table(kind, folder, names, rows)}?{options}")
