"""Opens a run's journal without changing anything in the run folder."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from edge_server.storage.journal_reader import JournalReader
from schemas.errors import ConfigError


@contextlib.contextmanager
def open_journal(path: Path, *, live: bool) -> Iterator[JournalReader]:
    """Read a journal; `live` says that its writer may be running.

    SQLite's readers share an index file with the writer and would create that file without one. So a journal
    without a writer is opened as immutable, and one with the write-ahead log of a killed writer is copied
    first. Raises `ConfigError` where the journal is missing or has another format.
    """
    if live:
        try:
            reader = JournalReader(path)
        except ConfigError:
            live = False  # a read-only folder without a running writer
        else:
            with closing(reader):
                yield reader
            return
    with (
        unchanged(path) as (readable, immutable),
        closing(JournalReader(readable, immutable=immutable)) as reader,
    ):
        yield reader


@contextlib.contextmanager
def unchanged(path: Path) -> Iterator[tuple[Path, bool]]:
    """A SQLite file to read without changing `path`, and whether it is immutable.

    With a write-ahead log it is a copy, which is not immutable.
    """
    write_ahead_log = path.with_name(f"{path.name}-wal")
    if not write_ahead_log.exists() or write_ahead_log.stat().st_size == 0:
        yield path, True
        return
    with tempfile.TemporaryDirectory(prefix="edge-dashboard-") as folder:
        for file in (path, write_ahead_log):
            shutil.copyfile(file, Path(folder) / file.name)
        yield Path(folder) / path.name, False
