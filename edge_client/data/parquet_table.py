"""Tables in Parquet files, read as `tables` reads CSV files; needs pyarrow (the extra `parquet`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from edge_client.data.tables import Row, Table
from schemas.errors import ConfigError

BATCH = 8192
"""Rows that are decoded at once."""


@dataclass(frozen=True)
class ParquetTable(Table):
    """A Parquet file whose columns are numbers, truth values, times or texts."""

    path: Path

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns that pandas has written as the labels of the rows."""
        with self._file() as file:
            about = file.schema_arrow.pandas_metadata or {}
        # A range of numbers is no column, and stands there as an object.
        return tuple(name for name in about.get("index_columns", ()) if isinstance(name, str))

    @contextmanager
    def opened(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows with their numbers; `ConfigError` for what is no such file."""
        with self._file() as file:
            yield _rows(file)

    @contextmanager
    def _file(self) -> Iterator[Any]:
        """The open file; `ConfigError` for what is none."""
        if not self.path.is_file():
            raise ConfigError(f"cannot read {self.path}: there is no such file")
        try:
            import pyarrow
            from pyarrow.parquet import ParquetFile
        except ModuleNotFoundError as error:
            remedy = "pip install 'edge-federation[parquet]', or write the table as CSV"
            raise ConfigError(f"{self.path} needs {error.name}, which is not installed: {remedy}") from error
        try:
            with ParquetFile(self.path) as file:
                yield file
        except pyarrow.ArrowException as error:
            raise ConfigError(f"{self.path} is no Parquet file: {error}") from error

    def place(self, number: int) -> str:
        """Where a row is, for messages."""
        return f"{self.path} row {number}"


def _rows(file: Any) -> Iterator[Row]:
    yield 0, list(file.schema_arrow.names)
    rows = (
        row
        for batch in file.iter_batches(batch_size=BATCH)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for number, row in enumerate(rows, 1):
        yield number, [_text(value) for value in row]


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, timedelta):
        return str(value.total_seconds())
    return str(int(value)) if isinstance(value, bool) else str(value)
