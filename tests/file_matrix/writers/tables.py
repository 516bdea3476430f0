"""Tables of text: CSV and its relatives by the programs that write them."""

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.programs import run
from tests.file_matrix.rows import NOTHING, Rows, Truth, refused
from tests.file_matrix.writers.sensors import (
    CO2,
    COLUMNS,
    INPUTS,
    ROWS,
    SENSORS,
    STATE,
    TEMPERATURE,
    TIMED,
    filtered,
)

TABLES = Rows()
SOURCE = "csv:FOLDER/log.csv?label=state"
TIMED_SOURCE = f"{SOURCE}&time=time"


def _pandas(
    kind: str,
    source: str = SOURCE,
    *,
    columns: Any = COLUMNS,
    truth: Truth = SENSORS,
    change: Callable[[Any], Any] = lambda frame: frame,
    name: str = "log.csv",
    intended: Mapping[str, str] = NOTHING,
    **how: Any,
) -> None:
    """A row of `DataFrame.to_csv` with these arguments, after a `change` of the frame."""

    @TABLES.row(kind, "pandas", source, truth=truth, intended=intended)
    def write(folder: Path) -> None:
        import pandas

        change(pandas.DataFrame(columns)).to_csv(folder / name, **how)


_pandas("CSV", index=False)
_pandas("CSV, row numbers in a nameless column")
_pandas("CSV, rows filtered, their numbers kept", change=filtered)
_pandas("CSV, index with a name", change=lambda frame: frame.rename_axis("id"), source=f"{SOURCE}&ignore=id")
_pandas("CSV, semicolons and decimal commas", sep=";", decimal=",", index=False)
_pandas("CSV, semicolons and decimal points", sep=";", index=False)
_pandas("CSV, tabs and decimal commas", sep="\t", decimal=",", index=False)
_pandas("CSV, tabs", sep="\t", index=False)
_pandas("CSV, bars", sep="|", index=False)
_pandas("CSV, gzip", name="log.csv.gz", source="csv:FOLDER/log.csv.gz?label=state", index=False)
_pandas("CSV, UTF-16", encoding="utf-16", index=False)
_pandas("CSV, UTF-8 with a mark", encoding="utf-8-sig", index=False)
_pandas("CSV, everything in quotes", quoting=csv.QUOTE_ALL, index=False)
_pandas("CSV, lines end with CR LF", lineterminator="\r\n", index=False)
_pandas("CSV, numbers as 1.825000e+01", float_format="%e", index=False)
_pandas("CSV, times as the index", TIMED_SOURCE, columns=TIMED, change=lambda frame: frame.set_index("time"))
_pandas(
    "CSV, times with an offset",
    TIMED_SOURCE,
    columns=TIMED,
    change=lambda frame: frame.set_index(frame.pop("time").dt.tz_localize("Europe/Vienna")),
)
_pandas(
    "CSV, times as 01.03.2026 09:50", TIMED_SOURCE, columns=TIMED, date_format="%d.%m.%Y %H:%M", index=False
)
_pandas(
    "CSV, times as 9:50:00 without a zero", TIMED_SOURCE, columns=TIMED, date_format="%-H:%M:%S", index=False
)
for options, kind, intended in (
    ("", "CSV, times as 03/01/2026 09:50 AM", refused("state time-format=")),
    ("&time-format=%m/%d/%Y %I:%M %p", "CSV, times as 03/01/2026 09:50 AM, stated", NOTHING),
):
    _pandas(
        kind,
        TIMED_SOURCE + options,
        columns=TIMED,
        date_format="%m/%d/%Y %I:%M %p",
        index=False,
        intended=intended,
    )
_pandas(
    "CSV, truth values as inputs",
    columns={"door": [value < 900 for value in CO2], **COLUMNS},
    truth=Truth(np.column_stack([[value < 900 for value in CO2], INPUTS]), STATE),
    index=False,
)
_pandas(
    "CSV, classes True and False",
    columns={**COLUMNS, "state": [state == "busy" for state in STATE]},
    truth=Truth(INPUTS, [str(state == "busy") for state in STATE]),
    index=False,
)
_pandas(
    "CSV, classes -1 and 1",
    columns={**COLUMNS, "state": [1 if state == "busy" else -1 for state in STATE]},
    truth=Truth(INPUTS, ["1" if state == "busy" else "-1" for state in STATE]),
    index=False,
)
_pandas(
    "CSV, classes 0 and 1",
    columns={**COLUMNS, "state": [int(state == "busy") for state in STATE]},
    truth=Truth(INPUTS, ["1" if state == "busy" else "0" for state in STATE]),
    index=False,
)
for word in ("none", "NA", "null", "n/a", "unknown", "offline", "nan"):
    _pandas(
        f"CSV, a class called {word}",
        f"{SOURCE}&missing=drop",
        columns={**COLUMNS, "state": [word if state == "busy" else state for state in STATE]},
        truth=Truth(INPUTS, [word if state == "busy" else state for state in STATE]),
        index=False,
    )
GAPS = [value if place not in (3, 7) else None for place, value in enumerate(TEMPERATURE)]
KEPT = [place for place in range(len(STATE)) if place not in (3, 7)]
for word in ("", "NaN", "unavailable", "unknown", "N/A", "null", "-"):
    _pandas(
        f"CSV, missing numbers as {word!r}",
        f"{SOURCE}&missing=drop",
        columns={**COLUMNS, "temperature": GAPS},
        truth=Truth(INPUTS[KEPT], [STATE[place] for place in KEPT]),
        na_rep=word,
        index=False,
    )
TOTALS = 45_678_912 + np.cumsum(np.arange(12) % 4)
CHANGES = (TOTALS[4:] - TOTALS[3:-1]).astype(np.float64)[:, None]
_pandas(
    "CSV, a meter's total of 45678912 Wh, changes learnt",
    "csv:FOLDER/log.csv?label=total&window=4&horizon=1&change=yes",
    columns={"total": TOTALS},
    truth=Truth(
        np.lib.stride_tricks.sliding_window_view(TOTALS[:-1], 4)[:, None].astype(np.float64),
        CHANGES,
        task="forecasting",
    ),
    index=False,
)


def _csv(kind: str, source: str = SOURCE, *, truth: Truth = SENSORS, **how: Any) -> None:
    """A row of Python's `csv.writer` in a dialect."""

    @TABLES.row(kind, "csv", source, truth=truth)
    def write(folder: Path) -> None:
        with (folder / "log.csv").open("w", newline="") as file:
            writer = csv.writer(file, **how)
            writer.writerow(COLUMNS)
            writer.writerows(ROWS)


_csv("CSV, dialect excel")
_csv("CSV, dialect excel-tab", dialect="excel-tab")
_csv("CSV, dialect unix", dialect="unix")
_csv("CSV, texts in quotes", quoting=csv.QUOTE_NONNUMERIC)
_csv("CSV, lines end with CR", lineterminator="\r")


def _polars(kind: str, **how: Any) -> None:
    @TABLES.row(kind, "polars", SOURCE, truth=SENSORS)
    def write(folder: Path) -> None:
        import polars

        polars.DataFrame(COLUMNS).write_csv(folder / "log.csv", **how)


_polars("CSV")
_polars("CSV, semicolons and decimal commas", separator=";", decimal_comma=True)
_polars("CSV, with a mark, quoted", include_bom=True, quote_style="always")


@TABLES.row("CSV", "pyarrow", SOURCE, truth=SENSORS)
def _(folder: Path) -> None:
    import pyarrow
    from pyarrow import csv as arrow_csv

    arrow_csv.write_csv(pyarrow.table(dict(COLUMNS)), folder / "log.csv")


def _duckdb(kind: str, options: str) -> None:
    @TABLES.row(kind, "duckdb", SOURCE, truth=SENSORS)
    def write(folder: Path) -> None:
        import duckdb
        import pandas

        frame = pandas.DataFrame(COLUMNS)
        duckdb.connect().register("log", frame).execute(f"COPY log TO '{folder / 'log.csv'}' ({options})")


_duckdb("CSV", "HEADER")
_duckdb("CSV, semicolons, all in quotes", "HEADER, DELIMITER ';', FORCE_QUOTE *")


def _sqlite_shell(kind: str, *dots: str) -> None:
    """The output of the shell's modes."""

    @TABLES.row(kind, "sqlite3 (shell)", SOURCE, truth=SENSORS)
    def write(folder: Path) -> None:
        values = ",".join(f"({t}, {c}, '{s}')" for t, c, s in ROWS)
        create = f"CREATE TABLE log(temperature REAL, co2 REAL, state TEXT); INSERT INTO log VALUES {values};"
        script = "\n".join([create, ".headers on", *dots, "SELECT * FROM log;"])
        (folder / "log.csv").write_bytes(run("sqlite3", stdin=script.encode()))


_sqlite_shell("CSV of a query", ".mode csv")
_sqlite_shell("list of a query, bars", ".mode list")
_sqlite_shell("list of a query, tabs", ".mode tabs")


def _ssconvert(kind: str, *options: str, name: str = "log.txt", more: str = "") -> None:
    """A sheet as text by Gnumeric."""

    @TABLES.row(kind, "ssconvert", f"csv:FOLDER/{name}?label=state{more}", truth=SENSORS)
    def write(folder: Path) -> None:
        with (folder / "sheet").open("w", newline="") as file:
            csv.writer(file).writerows([tuple(COLUMNS), *ROWS])
        run("ssconvert", "--import-type=Gnumeric_stf:stf_csvtab", *options, folder / "sheet", folder / name)
        (folder / "sheet").unlink()


_ssconvert("sheet as CSV", name="log.csv")
_ssconvert("sheet as text, semicolons", "-O", "separator=; quoting-mode=always")
_ssconvert("sheet as text, UTF-16 without a mark", "-O", "charset=UTF-16LE")
_ssconvert(
    "sheet as text, UTF-16 without a mark, stated", "-O", "charset=UTF-16LE", more="&encoding=utf-16-le"
)


def _numpy(kind: str, **how: Any) -> None:
    """Numbers of `numpy.savetxt`, whose header begins with a comment sign unless told otherwise."""

    truth = Truth(INPUTS, ["1" if state == "busy" else "0" for state in STATE])

    @TABLES.row(kind, "numpy", SOURCE, truth=truth)
    def write(folder: Path) -> None:
        numbers = np.column_stack([INPUTS, [state == "busy" for state in STATE]])
        np.savetxt(folder / "log.csv", numbers, delimiter=",", header="temperature,co2,state", **how)


_numpy("savetxt with a plain header", comments="")
_numpy("savetxt with its usual header, # before the names")
