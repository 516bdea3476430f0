"""What a backup takes of a folder: everything but locks, temporary files, and what is made again."""

import os
from collections.abc import Iterator
from pathlib import Path

from edge_server.fleet.backup.steady_files import COMPANIONS, PINS

JOURNAL = "journal.sqlite"
MADE_AGAIN = frozenset({"disposal", "unpacked", "sums", "standby", "object-store"})
"""Folders of a run that its server makes again."""
LOCK = "lock"
TEMPORARY = (".part", ".spare", ".chunks", ".tmp", ".lock", *COMPANIONS)
"""Ends of the names of files that are being written, or only locked."""
APPENDED = (".jsonl", ".log", ".log.1")
"""Ends of the names of files to which lines are appended: the whole lines that there are are saved."""
SECRET_SUFFIXES = frozenset({".key", ".secret", ".password", ".token"})
PRIVATE_KEY = b"PRIVATE KEY-----"
HEAD_BYTES = 4096
FIRST, LAST = ("jobs.sqlite",), ("audit.jsonl",)
"""A queue is saved before the runs that it names; the audit log after all that it tells of."""


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run which a server has begun."""
    return (folder / JOURNAL).is_file()


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What to save of a folder, in order: the queue, SQLite files, other files, folders, the audit log."""
    try:
        with os.scandir(folder) as scanned:
            entries = [entry for entry in scanned if not _is_left_out(entry.name, folder)]
    except FileNotFoundError:
        return
    yield from sorted(entries, key=_order)


def is_secret(path: Path) -> bool:
    """Whether a file holds a private key or a password, by its name or its content."""
    if path.suffix in SECRET_SUFFIXES:
        return True
    with path.open("rb") as file:
        return PRIVATE_KEY in file.read(HEAD_BYTES)


def _is_left_out(name: str, folder: Path) -> bool:
    if name == LOCK or name.startswith(PINS) or name.endswith(TEMPORARY):
        return True
    return name in MADE_AGAIN and is_run(folder)


def _order(entry: os.DirEntry[str]) -> tuple[int, str]:
    if entry.name in FIRST:
        return 0, entry.name
    if entry.name in LAST:
        return 4, entry.name
    if entry.is_dir(follow_symlinks=False):
        return 3, entry.name
    return (1 if entry.name.endswith(".sqlite") else 2), entry.name
