"""Tables in Arrow and Feather files, read as those in Parquet; needs pyarrow (the extra `parquet`)."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edge_client.data.tables import parquet_table, series_rows
from edge_client.data.tables.table import Table
from schemas.errors import ConfigError


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file, and its options: lists of numbers are windows."""
    table = ArrowTable(path, even="window" not in options)
    return table, series_rows.with_windows(table, options)


class ArrowTable(parquet_table.PyarrowTable):
    """An Arrow file (Feather), or a stream in a file."""

    @contextmanager
    def reader(self) -> Iterator[tuple[Any, Iterable[Any]]]:
        pyarrow = parquet_table.import_pyarrow(self.path)
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
            raise ConfigError(f"{self.path} is not an Arrow file, or is broken", quoted=error) from error
