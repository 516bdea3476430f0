"""SQLite files: tables of programs, and the recorder of Home Assistant."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.file_matrix.programs import run
from tests.file_matrix.rows import Rows
from tests.file_matrix.writers.sensors import COLUMNS, ROWS, SENSORS, TIMED

DATABASES = Rows()
SOURCE = "sqlite:FOLDER/log.db?label=state"
CREATE = "CREATE TABLE log(temperature REAL, co2 REAL, state TEXT)"


def _module(kind: str, *statements: str, source: str = SOURCE) -> None:
    """A row of Python's `sqlite3`; the statements run before the rows are inserted, or after `INSERT`."""

    @DATABASES.row(kind, "sqlite3", source, truth=SENSORS)
    def write(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "log.db")) as database, database:
            for statement in statements:
                if statement == "INSERT":
                    database.executemany("INSERT INTO log(temperature, co2, state) VALUES (?, ?, ?)", ROWS)
                else:
                    database.execute(statement)


_module("SQLite", CREATE, "INSERT")
_module("SQLite, write-ahead log", "PRAGMA journal_mode = WAL", CREATE, "INSERT")
_module("SQLite, UTF-16", "PRAGMA encoding = 'UTF-16'", CREATE, "INSERT")
_module("SQLite, numbers as texts", "CREATE TABLE log(temperature TEXT, co2 TEXT, state TEXT)", "INSERT")
_module("SQLite, strict", f"{CREATE} STRICT", "INSERT")
_module(
    "SQLite, a primary key of row numbers",
    "CREATE TABLE log(id INTEGER PRIMARY KEY AUTOINCREMENT, temperature REAL, co2 REAL, state TEXT)",
    "INSERT",
    source=f"{SOURCE}&ignore=id",
)
_module(
    "SQLite, a view of two tables",
    CREATE,
    "INSERT",
    "CREATE VIEW chosen AS SELECT temperature, co2, state FROM log ORDER BY rowid",
    source=f"{SOURCE}&table=chosen",
)


@DATABASES.row("SQLite, imported CSV", "sqlite3 (shell)", SOURCE, truth=SENSORS)
def _(folder: Path) -> None:
    (folder / "log.csv").write_text("\n".join(",".join(map(str, row)) for row in (COLUMNS, *ROWS)) + "\n")
    run("sqlite3", folder / "log.db", ".mode csv", f".import {folder / 'log.csv'} log")
    (folder / "log.csv").unlink()


def _pandas(
    kind: str, source: str = SOURCE, *, columns: dict[str, tuple[object, ...]] = COLUMNS, **how: object
) -> None:
    @DATABASES.row(kind, "pandas", source, truth=SENSORS)
    def write(folder: Path) -> None:
        import pandas

        with closing(sqlite3.connect(folder / "log.db")) as database:
            pandas.DataFrame(columns).to_sql("log", database, **how)  # type: ignore[arg-type]


_pandas("SQLite, row numbers in a column called index")
_pandas("SQLite, without the index", index=False)
_pandas("SQLite, with times", f"{SOURCE}&time=time", columns=TIMED, index=False)
