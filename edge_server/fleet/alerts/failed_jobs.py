"""Failed jobs of the service's queue, read from `jobs.sqlite` at each look."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_server.fleet.alerts.facts import Incident, IncidentKind

QUERY = """
SELECT jobs.record, runs.record FROM runs JOIN jobs ON jobs.name = runs.job
WHERE json_extract(runs.record, '$.ended_at') > ? ORDER BY runs.due
"""


@dataclass(frozen=True)
class EndedJobs:
    """Jobs whose newest run has failed, and the names of all runs that have ended."""

    failed: tuple[Incident, ...] = ()
    runs: frozenset[str] = frozenset()


def read_ended_jobs(path: Path, since: float) -> EndedJobs:
    """The jobs that have ended since then; empty without a queue. Raises `sqlite3.Error`."""
    if not path.is_file():
        return EndedJobs()
    with closing(sqlite3.connect(path, timeout=5)) as database:
        made = database.execute("SELECT 1 FROM sqlite_master WHERE name = 'runs'").fetchone()
        rows = database.execute(QUERY, (since,)).fetchall() if made else []
    runs = [(json.loads(job), json.loads(run)) for job, run in rows]
    newest = {job["name"]: (job, run) for job, run in runs}
    failed = tuple(_incident(job, run) for job, run in newest.values() if run["phase"] == "failed")
    return EndedJobs(failed, frozenset(run["name"] for _, run in runs))


def _incident(job: Mapping[str, Any], run: Mapping[str, Any]) -> Incident:
    return Incident(
        at=run["ended_at"],
        kind=IncidentKind.JOB,
        federation=job["federation"],
        subject=job["name"],
        text=run["why"] or "its process ended with an error",
        run=run["name"],
    )
