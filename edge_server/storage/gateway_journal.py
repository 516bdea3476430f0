"""The journal of a gateway: tasks of its devices, their examined updates, and who was there.

A gateway that was killed goes on with it: it knows which updates lie on its disk, and what they answer.
"""

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from edge_client.storage.atomic_files import sync
from schemas.errors import ConfigError
from schemas.messages import Task, Update, decode_task

FORMAT = 1
RESERVED = 100
"""Numbers that are reserved for attempts to connect; more of them take longer than as many milliseconds."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS site (federation TEXT NOT NULL, site TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS devices (device TEXT PRIMARY KEY, session INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (device TEXT PRIMARY KEY, task TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS updates (
    device TEXT PRIMARY KEY, run TEXT NOT NULL, round INTEGER NOT NULL, message TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (number INTEGER NOT NULL);
"""


class GatewayJournal:
    """One connection in WAL mode, usable from any thread; raises `ConfigError` for another site's journal."""

    def __init__(self, path: Path, federation: str, site: str) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, FORMAT):
            raise ConfigError(f"a journal of format {found}; this program reads format {FORMAT}", place=path)
        # One transaction, since each waits for the disk.
        self._connection.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={FORMAT};COMMIT;")
        known = self._connection.execute("SELECT federation, site FROM site").fetchone()
        if known not in (None, (federation, site)):
            raise ConfigError(
                f"{path.parent} belongs to the site '{known[1]}' of the federation '{known[0]}'",
                remedy="name another folder with --out",
            )
        if known is None:
            with self.writing() as written:
                written.execute("INSERT INTO site VALUES (?, ?)", (federation, site))
            # Until then a power cut may take the folder away with all that was written in it.
            sync(path.parent)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._connection:
            yield self._connection

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        with self.writing() as written:
            written.execute(statement, values)

    def _read(self, query: str) -> list[tuple[str, ...]]:
        with self._lock:
            return self._connection.execute(query).fetchall()

    # --- sessions ---
    def next_session(self) -> int:
        """A number above those of all earlier sessions, also of another folder; it is reserved on disk."""
        ((last,),) = self._read("SELECT COALESCE(MAX(number), 0) FROM sessions")
        session = max(int(last) + 1, int(time.time() * 1000))
        self.reserve_sessions(session)
        return session

    def reserve_sessions(self, session: int) -> None:
        """Reserve the numbers of the sessions that follow this one: a last will has them first."""
        with self.writing() as written:
            written.execute("DELETE FROM sessions")
            written.execute("INSERT INTO sessions VALUES (?)", (session + RESERVED,))

    # --- devices ---
    def born(self, device: str, session: int) -> None:
        """Write that the server above knows a device."""
        self._write("INSERT OR REPLACE INTO devices VALUES (?, ?)", (device, session))

    def write_death(self, device: str) -> None:
        """Write that the server above knows of its death."""
        self._write("DELETE FROM devices WHERE device = ?", (device,))

    def devices(self) -> dict[str, int]:
        """The devices of which what is above knows, with their sessions."""
        return {device: int(session) for device, session in self._read("SELECT device, session FROM devices")}

    # --- tasks and updates ---
    def write_task(self, device: str, task: Task) -> None:
        """Write a device's task; only the last one is kept."""
        self._write("INSERT OR REPLACE INTO tasks VALUES (?, ?)", (device, task.model_dump_json()))

    def write_examined(self, update: Update) -> None:
        """Write an update with its receipt; only a device's last one is kept."""
        row = (update.device, update.run, update.round, update.model_dump_json())
        self._write("INSERT OR REPLACE INTO updates VALUES (?, ?, ?, ?)", row)

    def forget(self, run: str, oldest: int) -> None:
        """Delete the updates of rounds before `oldest`, and of other runs."""
        self._write("DELETE FROM updates WHERE run != ? OR round < ?", (run, oldest))

    def tasks(self) -> Mapping[str, Task]:
        return {device: decode_task(task) for device, task in self._read("SELECT device, task FROM tasks")}

    def updates(self) -> Mapping[str, Update]:
        """The last examined update of every device."""
        rows = self._read("SELECT device, message FROM updates")
        return {device: Update.model_validate_json(message) for device, message in rows}

    def close(self) -> None:
        with self._lock:
            self._connection.close()
