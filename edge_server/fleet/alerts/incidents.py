"""Incidents from the disk: refusals, abandoned rounds and failed runs, failed jobs, trials of rollouts.

A run folder's event list is read from the last change on; run folders and registry may be written meanwhile.
"""

import json
import logging
import sqlite3
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from edge_client.data.tasks.words import figure_text, leading
from edge_server.fleet.settings.alert_kinds import Incident, IncidentKind
from edge_server.releases.registry.registry import FILE
from edge_server.rounds.event_entry import EventKind
from edge_server.storage.event_list import EventRow, read_events
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError
from schemas.messages import ModelReport, rollout

log = logging.getLogger(__name__)

T = TypeVar("T")

MAX_EVENTS = 2000  # Most events that one look reads of a run
CLOCK_TICK_S = 2.0  # Most seconds between two times that a disk tells apart
FAILURES = {"round abandoned": IncidentKind.ROUND, "run failed": IncidentKind.JOB}
KINDS = (EventKind.REFUSAL, EventKind.ROUND)


@dataclass
class _Run:
    """What is known of a run folder: its federation, the last change read, its incidents by row."""

    federation: str
    change: int = 0
    read_at: float = 0.0
    incidents: dict[int, Incident] = field(default_factory=dict)


class IncidentReader:
    """Incidents of the last `horizon_s` seconds from the folder of a service."""

    def __init__(self, folder: ServiceFolder, *, horizon_s: float) -> None:
        self._folder, self._horizon_s = folder, horizon_s
        self._known: dict[str, _Run] = {}
        self._complained: set[str] = set()

    def read(self, now: float) -> list[Incident]:
        """All incidents since `now - horizon_s`; what cannot be read is logged once, and left out."""
        since = now - self._horizon_s
        nothing: list[Incident] = []
        jobs = self._try_reading("jobs", lambda: read_ended_jobs(self._folder.jobs, since), EndedJobs())
        trials = self._try_reading("registry", lambda: read_trials(self._folder.registry, since), nothing)
        found = [*jobs.failed, *trials]
        for folder in self._folders():
            of_run = self._try_reading(folder.name, partial(self._of_run, folder, since, now), nothing)
            # A run of the queue is known by its job.
            known = folder.name in jobs.runs
            found += [entry for entry in of_run if not (known and entry.kind is IncidentKind.JOB)]
        return found

    def _try_reading(self, name: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except (ConfigError, OSError, sqlite3.Error, ValueError, LookupError) as error:
            if name not in self._complained:
                self._complained.add(name)
                log.warning("alerts: %s is left out: %s", name, error)
            return otherwise

    def _folders(self) -> list[Path]:
        try:
            return sorted(path for path in self._folder.runs.iterdir() if (path / "events.sqlite").is_file())
        except OSError:
            return []

    def _of_run(self, folder: Path, since: float, now: float) -> list[Incident]:
        written_at = (folder / "events.sqlite").stat().st_mtime
        if written_at < since:
            self._known.pop(folder.name, None)
            return []
        run = self._known.setdefault(folder.name, _Run(federation_of(folder)))
        if written_at > run.read_at - CLOCK_TICK_S:
            self._catch_up(folder, run)
            run.read_at = now
        run.incidents = {row: incident for row, incident in run.incidents.items() if incident.at > since}
        return list(run.incidents.values())

    def _catch_up(self, folder: Path, run: _Run) -> None:
        path = folder / "events.sqlite"
        for row in read_events(path, kinds=KINDS, after=run.change, most=MAX_EVENTS):
            run.change = max(run.change, row.change)
            incident = incident_of(row, folder, run.federation)
            if incident is not None:
                run.incidents[row.id] = incident


def incident_of(row: EventRow, folder: Path, federation: str) -> Incident | None:
    event = row.event
    kind = IncidentKind.REFUSAL if event.kind is EventKind.REFUSAL else FAILURES.get(event.subject)
    if kind is None or (kind is IncidentKind.REFUSAL and not event.device):
        return None
    return Incident(
        at=max(event.at, event.last_at),
        kind=kind,
        federation=federation,
        subject=event.device if kind is IncidentKind.REFUSAL else folder.name,
        text=f"{event.reason}: {event.text}" if event.reason else event.text,
        count=event.count,
        run=str(folder),
    )


def federation_of(folder: Path) -> str:
    """The federation of a run folder; empty where its file has none."""
    try:
        table = tomllib.loads((folder / "federation.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    federation = table.get("federation")
    return str(federation.get("name", "")) if isinstance(federation, dict) else ""


def read_trials(registry: Path, since: float) -> list[Incident]:
    """What devices have reported of offered models since then; empty without a registry."""
    file = registry / FILE
    if not file.is_file():
        return []
    with closing(sqlite3.connect(file, timeout=5)) as database:
        rows = database.execute(
            "SELECT targets.device, targets.report, targets.at, rollouts.federation, rollouts.version"
            " FROM targets JOIN rollouts USING (rollout) WHERE targets.at > ? AND report IS NOT NULL",
            (since,),
        ).fetchall()
    return list(_trials(rows))


def _trials(rows: Iterable[tuple[str, str, float, str, str]]) -> Iterator[Incident]:
    for device, text, at, federation, version in rows:
        try:
            report = ModelReport.model_validate_json(text)
        except ValidationError:
            continue
        lost = accuracy_lost(report)
        if report.stage in rollout.FINAL and lost is not None:
            words = _trial_text(report, version)
            yield Incident(at, IncidentKind.TRIAL, federation, device, words, lost=lost)


def accuracy_lost(report: ModelReport) -> float | None:
    """By how much the offered model is worse on the device's own examples; None without measurements."""
    if report.running is None or report.candidate is None:
        return None
    before, after = leading(report.running.metrics), leading(report.candidate.metrics)
    if before is None or after is None or before[0].name != after[0].name:
        return None
    return before[0].worsening(before[1], after[1])


def _trial_text(report: ModelReport, version: str) -> str:
    assert report.running is not None
    assert report.candidate is not None
    before, after = figure_text(report.running.metrics), figure_text(report.candidate.metrics)
    cause = f" ({report.cause})" if report.cause else ""
    return f"has {after} with {version}, and had {before} before; the model is {report.stage}{cause}"


ENDED_QUERY = """
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
        rows = database.execute(ENDED_QUERY, (since,)).fetchall() if made else []
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
