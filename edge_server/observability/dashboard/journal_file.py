"""A run's journal opened so that nothing in the run's folder changes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from edge_server.storage.journal_reader import JournalReader
from schemas.errors import ConfigError


@contextlib.contextmanager
def opened_journal(path: Path, *, live: bool) -> Iterator[JournalReader]:
    """Read a journal; `live` says that its writer may be at work.

    SQLite's readers share a file with its writer, beside the journal. Where there is no writer they would
    make that file: then the journal is read as one that nobody changes. What a killed writer left beside it
    is still part of it: then a copy is read. Raises `ConfigError` where there is none, or one of another
    format.
    """
    if live:
        try:
            reader = JournalReader(path)
        except ConfigError:
            live = False  # a folder that may not be written to, with no writer at work
        else:
            with closing(reader):
                yield reader
            return
    beside = path.with_name(f"{path.name}-wal")
    if not beside.exists() or beside.stat().st_size == 0:
        with closing(JournalReader(path, immutable=True)) as reader:
            yield reader
        return
    with tempfile.TemporaryDirectory(prefix="edge-dashboard-") as folder:
        for one in (path, beside):
            shutil.copyfile(one, Path(folder) / one.name)
        with closing(JournalReader(Path(folder) / path.name)) as reader:
            yield reader
