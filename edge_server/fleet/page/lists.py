"""The lists of the page, read from the files of the service folder."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from pathlib import Path

from edge_server.fleet.alerts.alert import Acknowledgement, Alert, Key, Silence
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.page.device_rows import Json, device_detail, device_page, parse_query
from edge_server.fleet.people import lockout, login
from edge_server.fleet.people.store import People
from edge_server.fleet.people.values import Actor, User, may
from edge_server.fleet.queue import log_reader, supervisor
from edge_server.fleet.queue.job import RUN
from edge_server.fleet.queue.overview import JobOverview, read_overviews, rollout_jobs
from edge_server.observability.dashboard.rollout_view import device_rollouts, every_rollout
from edge_server.releases.registry.registry import FILE, Registry
from edge_server.storage.audit_log import AuditEntry
from edge_server.storage.inventory.inventory import DeviceReader, Inventory
from edge_server.storage.inventory.records import InventoryDevice
from edge_server.storage.service_folder import ServiceFolder
from schemas.base import fields_of
from schemas.selectors import parse_where

# The lists of what the service does: jobs, rollouts, alerts.

MAX_VERSIONS = 50
MAX_LINES = 200
SHOWN_OF_RUN = {"name", "by", "phase", "attempt", "began_at", "ended_at", "why"}


def job_list(folder: ServiceFolder, at_once: int, now: float) -> Json:
    overviews = read_overviews(folder, at_once=at_once, now=now)
    return {"jobs": [_job(overview) for overview in overviews.values()]}


def job_detail(folder: ServiceFolder, name: str, at_once: int, now: float, *, with_log: bool) -> Json | None:
    """A job with its newest runs, and with the end of the newest one's log; None if there is none."""
    overview = read_overviews(folder, at_once=at_once, now=now).get(name)
    if overview is None:
        return None
    runs = [run.model_dump(mode="json", include=SHOWN_OF_RUN) for run in overview.runs]
    newest = runs[0]["name"] if runs and with_log else None
    return {
        **_job(overview),
        "min_eligible": overview.job.min_eligible,
        "missed": overview.missed,
        "runs": runs,
        "log_of": newest,
        "log": log_reader.last_lines(folder.runs / newest / supervisor.LOG, MAX_LINES) if newest else [],
    }


def rollout_list(folder: ServiceFolder, at_once: int, now: float) -> Json:
    """Rollouts, each with the job that carries it out, and the newest versions that can be rolled out."""
    rollouts = every_rollout(folder.registry)["rollouts"]
    jobs = {version: job.name for version, job in rollout_jobs(folder, at_once, now).items()}
    return {
        "rollouts": [{**rollout, "job": jobs.get(rollout["version"], "")} for rollout in rollouts],
        "versions": _versions(folder.registry),
    }


def alert_list(folder: ServiceFolder, now: float) -> Json:
    with closing(AlertStore(folder.alerts)) as store:
        alerts, silences, seen = store.alerts().values(), store.silences(now), store.acknowledgements()
    return {
        "alerts": [_alert(alert, silences, seen, now) for alert in alerts],
        "silences": [silence.model_dump(mode="json") for silence in silences],
    }


def device_alerts(folder: ServiceFolder, federation: str, device: str, now: float) -> list[Json]:
    about = ("device", federation, device)
    found = alert_list(folder, now)["alerts"]
    return [row for row in found if (row["kind"], row["federation"], row["name"]) == about]


def _job(overview: JobOverview) -> Json:
    job, run = overview.job, overview.runs[0] if overview.runs else None
    words = [Path(job.words[0]).name, *job.words[1:]] if job.action == RUN else [job.action, *job.words]
    return {
        "job": job.name,
        "what": " ".join(words),
        **fields_of(job, "federation", "wanted", "where", "owner"),
        **fields_of(overview, "state", "next_at", "why", "devices", "eligible"),
        "schedule": "" if job.schedule is None else str(job.schedule),
        "began_at": run.began_at if run else None,
        "ended_at": run.ended_at if run else None,
    }


def _versions(registry: Path) -> list[Json]:
    if not (registry / FILE).is_file():
        return []
    opened = Registry(registry)
    active = set(opened.actives().values())
    return [
        {
            **fields_of(version, "version", "federation", "created_at"),
            "active": version.version in active,
            "signed": version.key is not None,
        }
        for version in opened.versions()[:MAX_VERSIONS]
    ]


def _alert(
    alert: Alert, silences: tuple[Silence, ...], seen: Mapping[Key, Acknowledgement], now: float
) -> Json:
    subject, by = alert.subject, seen.get(alert.key)
    return {
        **fields_of(alert, "rule", "severity", "place", "since", "text", "remedy"),
        **fields_of(subject, "kind", "name", "federation", "site"),
        "state": alert.state(silences, seen, now),
        "acknowledged_by": by and by.who,
    }


MAX_ENTRIES = 200
CURVES = ("at", "celsius", "disk_free_bytes")
FRESH_S = 1.0  # The inventory is read again at most this often


class FolderLists:
    """Reads the folder; devices are kept in memory until another process or thread has changed them."""

    def __init__(
        self,
        folder: ServiceFolder,
        people: People,
        *,
        jobs_at_once: int,
        diagnostics: Callable[[str, str], Json] = lambda federation, device: {},
    ) -> None:
        self._folder, self._people = folder, people
        self._jobs_at_once, self._diagnostics = jobs_at_once, diagnostics
        self._inventory, self._audit = Inventory(folder.inventory), AuditTail(folder.audit)
        self._reader = DeviceReader(self._inventory)
        self._lock = threading.Lock()
        self._known: Sequence[InventoryDevice] = ()
        self._read_at = float("-inf")
        self._others: Mapping[str, Callable[[float], Json]] = {
            "jobs": partial(job_list, folder, jobs_at_once),
            "rollouts": partial(rollout_list, folder, jobs_at_once),
            "alerts": partial(alert_list, folder),
        }

    def close(self) -> None:
        self._inventory.close()

    def devices(self, asked: Mapping[str, str], actor: Actor, now: float) -> Json:
        query, scope = parse_query(asked), parse_where(actor.where)
        known = self._devices()
        within = [device for device in known if scope.matches(device.selectable)] if actor.where else known
        return {**device_page(within, query), "now": now}

    def device(self, federation: str, device: str, actor: Actor, now: float) -> Json | None:
        """One device, with its alerts, rollouts and curves; its answers for those who may ask it."""
        known = self._inventory.device(federation, device)
        if known is None or not parse_where(actor.where).matches(known.selectable):
            return None
        states = self._inventory.board_states(federation, device)
        return {
            **device_detail(known),
            "alerts": device_alerts(self._folder, federation, device, now),
            "rollouts": device_rollouts(self._folder.registry, federation, device),
            "curves": {name: [row[n] for row in states] for n, name in enumerate(CURVES)},
            "answers": self._diagnostics(federation, device) if may(actor.role, "devices.logs") else {},
            "now": now,
        }

    def job(self, name: str, actor: Actor, now: float) -> Json | None:
        """One job, with the end of its log for those who may read it."""
        with_log = may(actor.role, "joblog.read")
        found = job_detail(self._folder, name, self._jobs_at_once, now, with_log=with_log)
        return None if found is None else {**found, "now": now}

    def audit(self, asked: Mapping[str, str]) -> Json:
        """The newest entries of the audit log, of a user and an action if they are named."""
        who, what = asked.get("who", "").lower(), asked.get("what", "").lower()
        return {"entries": self._audit.newest(who=who, what=what, most=MAX_ENTRIES)}

    def users(self, now: float) -> Json:
        return {
            "users": [self._user(user, now) for user in self._people.users()],
            "tokens": [
                {"token": token.name, **fields_of(token, "role", "where", "made_by", "ends_at", "used_at")}
                for token in self._people.tokens()
            ],
        }

    def others(self) -> Sequence[str]:
        return tuple(self._others)

    def other(self, name: str, now: float) -> Json:
        return {**self._others[name](now), "now": now}

    def _user(self, user: User, now: float) -> Json:
        locked_s = lockout.wait_s(self._people.failures(login.USER, user.name), lockout.USER_RULES, now)
        return {"user": user.name, **fields_of(user, "role", "kind", "made_at"), "locked_s": locked_s}

    def _devices(self) -> Sequence[InventoryDevice]:
        with self._lock:
            now = time.monotonic()
            if now - self._read_at >= FRESH_S:
                self._known, self._read_at = self._reader.devices(), now
            return self._known


MAX_KNOWN = 5_000  # Entries that are kept and searched; `edge-server audit` searches all
MAX_BYTES = 8_000_000  # Of a larger log only this much of the end is read


class AuditTail:
    """Keeps the end of one log; a line that is damaged is left out."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._begin_again()

    def newest(self, *, who: str, what: str, most: int) -> list[Json]:
        """The newest entries with these texts in `who`, and in what was done or its target."""
        with self._lock:
            self._read_on()
            known = list(self._known)
        found = (
            entry.model_dump(mode="json", exclude={"previous"})
            for entry in reversed(known)
            if who in entry.who.lower() and what in f"{entry.what} {entry.target}".lower()
        )
        return list(islice(found, most))

    def _begin_again(self) -> None:
        self._known: deque[AuditEntry] = deque(maxlen=MAX_KNOWN)
        self._offset = 0
        self._file: tuple[int, int] | None = None

    def _read_on(self) -> None:
        if not self._path.exists():
            self._begin_again()
            return
        with self._path.open("rb") as file:
            self._check_file(file.fileno())
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        for line in whole.splitlines():
            self._take(line)

    def _check_file(self, descriptor: int) -> None:
        """Begin at the end of a log that is new or was replaced."""
        status = os.fstat(descriptor)
        file = (status.st_dev, status.st_ino)
        if file != self._file or status.st_size < self._offset:
            self._begin_again()
            self._file, self._offset = file, max(0, status.st_size - MAX_BYTES)

    def _take(self, line: bytes) -> None:
        try:
            self._known.append(AuditEntry.model_validate_json(line))
        except ValueError:
            # The beginning of the end of a large log, or a damaged line, which `audit --verify` reports.
            return
