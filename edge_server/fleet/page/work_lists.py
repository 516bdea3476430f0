"""The lists of what the service does: jobs, rollouts, alerts."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from edge_server.fleet.alerts.alert import Acknowledgement, Alert, Silence
from edge_server.fleet.alerts.rules import Key
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.page.device_rows import Json
from edge_server.fleet.queue.job import RUN
from edge_server.fleet.queue.log_reader import last_lines
from edge_server.fleet.queue.overview import JobOverview, read_overviews, rollout_jobs
from edge_server.fleet.queue.supervisor import LOG
from edge_server.observability.dashboard.rollout_view import every_rollout
from edge_server.releases.registry.registry import FILE, Registry
from edge_server.storage.service_folder import ServiceFolder

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
        "log": last_lines(folder.runs / newest / LOG, MAX_LINES) if newest else [],
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
        "federation": job.federation,
        "state": overview.state,
        "wanted": job.wanted,
        "schedule": "" if job.schedule is None else str(job.schedule),
        "next_at": overview.next_at,
        "why": overview.why,
        "where": job.where,
        "devices": overview.devices,
        "eligible": overview.eligible,
        "owner": job.owner,
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
            "version": version.version,
            "federation": version.federation,
            "created_at": version.created_at,
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
        "rule": alert.rule,
        "severity": alert.severity,
        "kind": subject.kind,
        "name": subject.name,
        "federation": subject.federation,
        "site": subject.site,
        "state": alert.state(silences, seen, now),
        "acknowledged_by": by and by.who,
        "place": alert.place,
        "since": alert.since,
        "text": alert.text,
        "remedy": alert.remedy,
    }
