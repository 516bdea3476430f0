"""Tables in Parquet files; needs pyarrow (the extra `parquet`)."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.data.tables.series_rows import Values, text_rows, with_windows
from edge_client.data.tables.table import Row, Table
from schemas.errors import ConfigError

BATCH = 8192  # rows that are decoded at once
UNITS = (b"unit", b"units", b"unit_of_measurement")  # keys of a column's metadata that state its unit


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file, and its options: lists of numbers are windows."""
    table = ParquetTable(path, even="window" not in options)
    return table, with_windows(table, options)


@dataclass(frozen=True)
class ParquetTable(Table):
    """A Parquet file whose columns are numbers, truth values, times, texts, or lists of numbers.

    With `even` all lists must have one length.
    """

    path: Path
    even: bool = True

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns that pandas has written as the labels of the rows."""
        with self._file() as file:
            return index_columns_of(file.schema_arrow)

    @contextmanager
    def opened(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows with their numbers; `ConfigError` for what is no such file."""
        with self._file() as file:
            batches = file.iter_batches(batch_size=BATCH)
            yield text_rows(self, file.schema_arrow.names, batch_rows(batches), even=self.even)

    def place(self, number: int) -> str:
        """Where a row is, for messages."""
        return f"{self.path} row {number}"

    @property
    def units(self) -> Mapping[str, str]:
        """The units that the columns' metadata state."""
        with self._file() as file:
            return units_of(file.schema_arrow)

    @contextmanager
    def _file(self) -> Iterator[Any]:
        pyarrow = import_pyarrow(self.path)
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(self.path) as file:
                yield file
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is no Parquet file, or is broken", quoted=error) from error


def import_pyarrow(path: Path) -> Any:
    """The module, for a file that is there; `ConfigError` with the remedy otherwise."""
    if not path.is_file():
        raise ConfigError(f"cannot read {path}: there is no such file")
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[parquet]', or write the table as CSV"
        raise ConfigError(f"{path} needs {error.name}, which is not installed: {remedy}") from error
    return pyarrow


def batch_rows(batches: Iterable[Any]) -> Iterator[Values]:
    """The rows of record batches, numbered from 1."""
    number = 0
    for batch in batches:
        # A damaged Arrow file would be read beyond its end.
        batch.validate(full=True)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield number, row


def index_columns_of(schema: Any) -> tuple[str, ...]:
    """The columns of an Arrow schema that pandas has written as the labels of the rows."""
    about = schema.pandas_metadata or {}
    # A range of numbers is no column, and stands there as an object.
    return tuple(name for name in about.get("index_columns", ()) if isinstance(name, str))


def units_of(schema: Any) -> dict[str, str]:
    """The units in the metadata of an Arrow schema's columns."""
    return {
        field.name: (field.metadata or {})[key].decode(errors="replace")
        for field in schema
        for key in UNITS
        if key in (field.metadata or {})
    }
