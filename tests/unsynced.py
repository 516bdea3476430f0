"""Nothing is synced: no test cuts this machine's power, and a killed process loses nothing that is written.

A sync takes 0.1 to 0.4 ms of processor time and several to wait for. Tests that let a sync fail replace
`os.fsync`.
"""

import os
import sqlite3
from functools import partial
from typing import Any

CONNECT = sqlite3.connect
"""As it is without tests."""


class UnsyncedConnection(sqlite3.Connection):
    """A connection that syncs nothing where the program asks for syncs."""

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        asks = statement.startswith("PRAGMA synchronous")
        return super().execute("PRAGMA synchronous=OFF" if asks else statement, *values)


def sync_nothing() -> None:
    """Sync no file in this process."""
    os.fsync = lambda descriptor: None
    sqlite3.connect = partial(CONNECT, factory=UnsyncedConnection)
