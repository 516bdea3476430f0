"""Parquet, Arrow and Feather files."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.file_matrix.rows import NOTHING, Rows, Truth, refused
from tests.file_matrix.writers.sensors import COLUMNS, INPUTS, SENSORS, STATE, TEMPERATURE, TIMED, filtered

COLUMNAR = Rows()
PARQUET = "parquet:FOLDER/log.parquet?label=state"
TIMED_PARQUET = f"{PARQUET}&time=time"
ARROW = "arrow:FOLDER/log.arrow?label=state"
FEATHER = "arrow:FOLDER/log.feather?label=state"


def _pandas(
    kind: str,
    source: str = PARQUET,
    *,
    columns: Any = COLUMNS,
    change: Callable[[Any], Any] = lambda frame: frame,
    **how: Any,
) -> None:
    """A row of `DataFrame.to_parquet` after `change`."""

    @COLUMNAR.row(kind, "pandas", source, truth=SENSORS)
    def write(folder: Path) -> None:
        import pandas

        change(pandas.DataFrame(columns)).to_parquet(folder / "log.parquet", **how)


_pandas("Parquet")
_pandas("Parquet, rows filtered, their numbers kept", change=filtered)
_pandas("Parquet, gzip, without the index", compression="gzip", index=False)
_pandas(
    "Parquet, times as the index", TIMED_PARQUET, columns=TIMED, change=lambda frame: frame.set_index("time")
)
_pandas(
    "Parquet, times with a zone",
    TIMED_PARQUET,
    columns=TIMED,
    change=lambda frame: frame.assign(time=frame["time"].dt.tz_localize("Europe/Vienna")),
)
_pandas(
    "Parquet, categories and float32",
    change=lambda frame: frame.astype({"temperature": "float32", "co2": "float32", "state": "category"}),
)


def _arrow_table(types: Mapping[str, str] = NOTHING) -> Any:
    """The sensors, with columns cast to these types."""
    import pyarrow

    table = pyarrow.table(dict(COLUMNS))
    for name, kind in types.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, table[name].cast(kind))
    return table


def _arrow_parquet(kind: str, types: Mapping[str, str] = NOTHING, **how: Any) -> None:
    @COLUMNAR.row(kind, "pyarrow", PARQUET, truth=SENSORS)
    def write(folder: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(_arrow_table(types), folder / "log.parquet", **how)


_arrow_parquet("Parquet, version 1.0, groups of 5 rows", version="1.0", row_group_size=5)
_arrow_parquet("Parquet, zstd, pages of version 2", compression="zstd", data_page_version="2.0")
_arrow_parquet("Parquet, floats of 32 and 16 bits", {"temperature": "float16", "co2": "float32"})
_arrow_parquet("Parquet, without a dictionary", use_dictionary=False, compression="none")


@COLUMNAR.row(
    "Parquet, a window per row in lists",
    "pyarrow",
    "parquet:FOLDER/log.parquet?label=state",
    truth=Truth(INPUTS[:, None], STATE),
)
def _(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({"signal": INPUTS.tolist(), "state": STATE})
    parquet.write_table(table, folder / "log.parquet")


@COLUMNAR.row("Parquet, decimal numbers", "pyarrow", PARQUET, truth=SENSORS)
def _(folder: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    numbers = pyarrow.array(TEMPERATURE).cast(pyarrow.decimal128(9, 3))
    parquet.write_table(_arrow_table().set_column(0, "temperature", numbers), folder / "log.parquet")


@COLUMNAR.row("Parquet", "polars", PARQUET, truth=SENSORS)
def _(folder: Path) -> None:
    import polars

    polars.DataFrame(COLUMNS).write_parquet(folder / "log.parquet")


@COLUMNAR.row("Parquet", "fastparquet", PARQUET, truth=SENSORS)
def _(folder: Path) -> None:
    import fastparquet
    import pandas

    fastparquet.write(str(folder / "log.parquet"), pandas.DataFrame(COLUMNS).astype({"state": object}))


@COLUMNAR.row("Parquet", "duckdb", PARQUET, truth=SENSORS)
def _(folder: Path) -> None:
    import duckdb
    import pandas

    log = duckdb.connect().register("log", pandas.DataFrame(COLUMNS))
    log.execute(f"COPY log TO '{folder / 'log.parquet'}' (FORMAT parquet)")


def _feather(kind: str, intended: Mapping[str, str] = NOTHING, **how: Any) -> None:
    @COLUMNAR.row(kind, "pyarrow", FEATHER, truth=SENSORS, intended=intended)
    def write(folder: Path) -> None:
        from pyarrow import feather

        feather.write_feather(_arrow_table(), folder / "log.feather", **how)


_feather("Feather, LZ4", compression="lz4")
_feather("Feather, zstd", compression="zstd")
_feather("Feather, not compressed", compression="uncompressed")
_feather("Feather, version 1", refused("write it again by pyarrow.feather.write_feather"), version=1)


@COLUMNAR.row("Feather", "pandas", FEATHER, truth=SENSORS)
def _(folder: Path) -> None:
    import pandas

    pandas.DataFrame(COLUMNS).to_feather(folder / "log.feather")


def _ipc(kind: str, opener: str) -> None:
    @COLUMNAR.row(kind, "pyarrow", ARROW, truth=SENSORS)
    def write(folder: Path) -> None:
        from pyarrow import ipc

        table = _arrow_table()
        with getattr(ipc, opener)(folder / "log.arrow", table.schema) as writer:
            writer.write_table(table)


_ipc("Arrow, file", "new_file")
_ipc("Arrow, stream", "new_stream")


def _polars_ipc(kind: str, method: str, **how: Any) -> None:
    @COLUMNAR.row(kind, "polars", ARROW, truth=SENSORS)
    def write(folder: Path) -> None:
        import polars

        getattr(polars.DataFrame(COLUMNS), method)(folder / "log.arrow", **how)


_polars_ipc("Arrow, file", "write_ipc")
_polars_ipc("Arrow, stream, zstd", "write_ipc_stream", compression="zstd")
