"""Tables in Arrow and Feather files, read as those in Parquet; needs pyarrow (the extra `parquet`)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.data.tables.parquet_table import batch_rows, import_pyarrow, index_columns_of, units_of
from edge_client.data.tables.series_rows import text_rows, with_windows
from edge_client.data.tables.table import Row, Table
from schemas.errors import ConfigError


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file, and its options: lists of numbers are windows."""
    table = ArrowTable(path, even="window" not in options)
    return table, with_windows(table, options)


@dataclass(frozen=True)
class ArrowTable(Table):
    """An Arrow file (Feather), or a stream in a file; with `even` all lists must have one length."""

    path: Path
    even: bool = True

    @contextmanager
    def opened(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows with their numbers; `ConfigError` for what is no such file."""
        with self._reader() as (schema, batches):
            yield text_rows(self, schema.names, batch_rows(batches), even=self.even)

    def place(self, number: int) -> str:
        """Where a row is, for messages."""
        return f"{self.path} row {number}"

    @property
    def units(self) -> Mapping[str, str]:
        """The units that the columns' metadata state."""
        with self._reader() as (schema, _):
            return units_of(schema)

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns that pandas has written as the labels of the rows."""
        with self._reader() as (schema, _):
            return index_columns_of(schema)

    @contextmanager
    def _reader(self) -> Iterator[tuple[Any, Iterator[Any]]]:
        """The schema and the batches."""
        pyarrow = import_pyarrow(self.path)
        try:
            with pyarrow.OSFile(str(self.path)) as file:
                if file.read(6) == b"ARROW1":
                    reader = pyarrow.ipc.open_file(file)
                    yield reader.schema, map(reader.get_batch, range(reader.num_record_batches))
                else:
                    file.seek(0)
                    reader = pyarrow.ipc.open_stream(file)
                    yield reader.schema, iter(reader)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} is no Arrow file, or is broken", quoted=error) from error
