"""The queue of jobs in one SQLite file: what the operator wants, and how far the service has come.

Commands write the table `jobs`, also while no service runs; the service writes the others, each time before
it acts. A transaction is on disk when it ends.
"""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from edge_server.fleet.queue.job import Job, JobRun
from edge_server.fleet.queue.state import JobProgress, Queue, QueueRules, Shares
from edge_server.storage.sqlite_file import SqliteFile
from schemas.errors import ConfigError, nearest

_V = TypeVar("_V")

MIGRATIONS = (
    """
    CREATE TABLE jobs (name TEXT PRIMARY KEY, record TEXT NOT NULL);
    CREATE TABLE runs (run TEXT PRIMARY KEY, job TEXT NOT NULL, due REAL NOT NULL, record TEXT NOT NULL);
    CREATE INDEX runs_of_job ON runs (job, due);
    CREATE TABLE progress (job TEXT PRIMARY KEY, record TEXT NOT NULL);
    CREATE TABLE shares (federation TEXT PRIMARY KEY, tag REAL NOT NULL);
    """,
)
"""One script for each version of the file; `PRAGMA user_version` counts those that were applied."""
KEPT_RUNS = 200  # Ended runs of a job that stay in the file
NEWEST = ""  # The row of `shares` with the tag of the newest start


class JobJournal:
    """The file `jobs.sqlite`, made if missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = SqliteFile(path, MIGRATIONS)
        self._version = -1

    def close(self) -> None:
        self._file.close()

    def has_changed(self) -> bool:
        """Whether another process has written since the last call; True for the first."""
        known, self._version = self._version, self._file.changed_elsewhere()
        return self._version != known

    # --- what the operator wants ---
    def jobs(self) -> dict[str, Job]:
        with self._reading() as database:
            return _jobs(database)

    def job(self, name: str) -> Job:
        return self._find_job(name, self.jobs())

    def _find_job(self, name: str, jobs: Mapping[str, Job]) -> Job:
        if name not in jobs:
            raise ConfigError(f"there is no job '{name}' in {self.path.parent}{nearest(name, jobs)}")
        return jobs[name]

    def add(self, job: Job) -> None:
        with self._writing() as database:
            if job.name in _jobs(database):
                raise ConfigError(
                    f"there is a job '{job.name}' already",
                    remedy=f"take another name, or first `edge-server jobs remove {job.name}`",
                )
            database.execute("INSERT INTO jobs VALUES (?, ?)", (job.name, job.model_dump_json()))

    def change(self, name: str, change: Callable[[Job], Job]) -> tuple[Job, Job]:
        """Change a job; returns it as it was and as it is. Raises `ConfigError` for an unknown job."""
        with self._writing() as database:
            before = self._find_job(name, _jobs(database))
            after = change(before)
            database.execute("UPDATE jobs SET record = ? WHERE name = ?", (after.model_dump_json(), name))
        return before, after

    def remove(self, name: str) -> Job:
        """Remove a job and the list of its runs; raises `ConfigError` while a run is not over."""
        with self._writing() as database:
            job, newest = self._find_job(name, _jobs(database)), _runs(database, name, most=1)
            if newest and not newest[0].over:
                raise ConfigError(
                    f"job '{name}' is {newest[0].phase}",
                    remedy=f"first `edge-server jobs stop {name}`, and remove the job when its run is over",
                )
            for table, column in (("jobs", "name"), ("runs", "job"), ("progress", "job")):
                database.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))
        return job

    # --- how far the service has come ---
    def runs(self, job: str, *, most: int) -> list[JobRun]:
        """The newest runs of a job, the newest first."""
        with self._reading() as database:
            return _runs(database, job, most=most)

    def load_queue(self, rules: QueueRules | None = None) -> Queue:
        with self._reading() as database:
            jobs = _jobs(database)
            progress = database.execute("SELECT job, record FROM progress").fetchall()
            tags = dict(database.execute("SELECT federation, tag FROM shares").fetchall())
            return Queue(
                rules=rules or QueueRules(),
                jobs=jobs,
                runs={run.job: run for job in jobs for run in _runs(database, job, most=1)},
                progress={job: JobProgress.model_validate_json(record) for job, record in progress},
                shares=Shares({name: tag for name, tag in tags.items() if name}, tags.get(NEWEST, 0.0)),
            )

    def save(self, before: Queue, after: Queue) -> bool:
        """Write what has changed; False, and nothing is written, if a job concerned has been removed."""
        runs = _changes(before.runs, after.runs, _lasting)
        progress = _changes(before.progress, after.progress, lambda value: value)
        if not runs and not progress:
            return True
        with self._writing() as database:
            if not _jobs(database).keys() >= {*runs, *progress}:
                return False
            write_runs(database, runs)
            database.executemany(
                "INSERT OR REPLACE INTO progress VALUES (?, ?)",
                [(job, value.model_dump_json()) for job, value in progress.items()],
            )
            tags = {**after.shares.tags, NEWEST: after.shares.newest}
            database.executemany("INSERT OR REPLACE INTO shares VALUES (?, ?)", tags.items())
        return True

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with _explain_errors(self.path), self._file.reading() as database:
            yield database

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with _explain_errors(self.path), self._file.writing() as database:
            yield database


def _jobs(database: sqlite3.Connection) -> dict[str, Job]:
    rows = database.execute("SELECT name, record FROM jobs ORDER BY name").fetchall()
    return {name: Job.model_validate_json(record) for name, record in rows}


def _runs(database: sqlite3.Connection, job: str, *, most: int) -> list[JobRun]:
    query = "SELECT record FROM runs WHERE job = ? ORDER BY due DESC LIMIT ?"
    return [
        JobRun.model_validate_json(record) for (record,) in database.execute(query, (job, most)).fetchall()
    ]


def write_runs(database: sqlite3.Connection, runs: Mapping[str, JobRun]) -> None:
    for job, run in runs.items():
        row = (run.name, job, run.due, run.model_dump_json())
        database.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?)", row)
        kept = "SELECT run FROM runs WHERE job = ? ORDER BY due DESC LIMIT ?"
        database.execute(f"DELETE FROM runs WHERE job = ? AND run NOT IN ({kept})", (job, job, KEPT_RUNS))


def _changes(
    before: Mapping[str, _V], after: Mapping[str, _V], lasting: Callable[[_V], object]
) -> dict[str, _V]:
    return {
        name: value
        for name, value in after.items()
        if name not in before or lasting(before[name]) != lasting(value)
    }


def _lasting(run: JobRun) -> object:
    """What of a run is worth a write: the count of its time is written along with other changes."""
    return run.model_copy(update={"counted_at": 0.0})


@contextlib.contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite and of foreign records as `ConfigError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise ConfigError(str(error), place=f"queue of jobs {path}") from error
    except ValidationError as error:
        raise ConfigError(
            f"{error.error_count()} fields were not written by this release",
            place=f"queue of jobs {path}",
            remedy="install the release that wrote them, or the newest",
        ) from error
