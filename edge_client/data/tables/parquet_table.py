"""Tables in Parquet files, and what all tables share that pyarrow reads (the extra `parquet`)."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
class PyarrowTable(Table):
    """A file whose columns are numbers, truth values, times, texts, or lists of numbers.

    With `even` all lists must have one length.
    """

    path: Path
    even: bool = True

    @abstractmethod
    def reader(self) -> AbstractContextManager[tuple[Any, Iterable[Any]]]:
        """The schema and the record batches."""

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        with self.reader() as (schema, batches):
            yield text_rows(self, schema.names, _batch_rows(batches), even=self.even)

    @property
    def units(self) -> Mapping[str, str]:
        """The units that the columns' metadata state."""
        with self.reader() as (schema, _):
            about = {field.name: field.metadata or {} for field in schema}
        return {
            name: stated[key].decode(errors="replace")
            for name, stated in about.items()
            for key in UNITS
            if key in stated
        }

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns that pandas has written as the labels of the rows."""
        with self.reader() as (schema, _):
            about = schema.pandas_metadata or {}
        # A range of numbers is no column, and stands there as an object.
        return tuple(name for name in about.get("index_columns", ()) if isinstance(name, str))


class ParquetTable(PyarrowTable):
    """A Parquet file."""

    @contextmanager
    def reader(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        pyarrow = import_pyarrow(self.path)
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(self.path) as file:
                yield file.schema_arrow, file.iter_batches(batch_size=BATCH)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is not a Parquet file, or is broken", quoted=error) from error


def import_pyarrow(path: Path) -> Any:
    """The module, for a file that is there; `ConfigError` with the remedy otherwise."""
    if not path.is_file():
        raise ConfigError(f"cannot read {path}: there is no such file")
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[parquet]', or write the table as CSV"
        raise ConfigError(f"{path} needs {error.name}, which is not installed", remedy=remedy) from error
    return pyarrow


def _batch_rows(batches: Iterable[Any]) -> Iterator[Values]:
    """The rows of record batches, numbered from 1."""
    number = 0
    for batch in batches:
        # A damaged Arrow file would be read beyond its end.
        batch.validate(full=True)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            number += 1
            yield number, row
