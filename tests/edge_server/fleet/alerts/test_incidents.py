"""Incidents are read from run folders and the registry, also while they are written."""

import json
import os
import sqlite3
from contextlib import closing

import pytest

from edge_server.fleet.alerts.incidents import IncidentReader
from edge_server.fleet.settings.alert_kinds import IncidentKind
from edge_server.releases.registry.registry import Registry
from edge_server.rounds.event_entry import EventKind, RunEvent
from edge_server.storage.event_list import EventFile
from edge_server.storage.service_folder import ServiceFolder
from schemas.messages import ModelReport
from schemas.messages.rollout import ModelMeasurement, Stage

NOW = 1_800_000_000.0
DAY = 86_400.0


def refusal(device="pi", *, at=NOW - 100, count=1, **values) -> RunEvent:
    subject = "update refused norm"
    return RunEvent(at, EventKind.REFUSAL, "update refused", subject, device, "norm", count, at, **values)


@pytest.fixture
def night(tmp_path):
    """The run folder of a federation `orchard`."""
    folder = tmp_path / "runs" / "night"
    folder.mkdir(parents=True)
    (folder / "federation.toml").write_text('[federation]\nname = "orchard"\n')
    return folder


def write(folder, *events: RunEvent) -> None:
    with closing(EventFile(folder / "events.sqlite")) as file:
        file.add(events)
    os.utime(folder / "events.sqlite", (NOW, NOW))


def reader(tmp_path) -> IncidentReader:
    return IncidentReader(ServiceFolder(tmp_path), horizon_s=DAY)


def test_refusals_failed_rounds_and_failed_runs_are_incidents(tmp_path, night):
    write(
        night,
        refusal(count=3),
        RunEvent(NOW - 90, EventKind.ROUND, "round abandoned: round 2: too few", "round abandoned"),
        RunEvent(NOW - 80, EventKind.ROUND, "run failed: given up", "run failed"),
        RunEvent(NOW - 70, EventKind.ROUND, "round 1 closed", "round 1 closed"),
        RunEvent(NOW - 2 * DAY, EventKind.REFUSAL, "old", "old", "pi"),
    )
    found = reader(tmp_path).read(NOW)
    assert [(entry.kind, entry.federation, entry.subject, entry.count) for entry in found] == [
        (IncidentKind.REFUSAL, "orchard", "pi", 3),
        (IncidentKind.ROUND, "orchard", "night", 1),
        (IncidentKind.JOB, "orchard", "night", 1),
    ]
    assert (found[0].text, found[0].run) == ("norm: update refused", str(night))


def test_counts_that_grow_are_not_counted_twice(tmp_path, night):
    opened = reader(tmp_path)
    write(night, refusal())
    assert [entry.count for entry in opened.read(NOW)] == [1]
    write(night, refusal(count=2))
    assert [entry.count for entry in opened.read(NOW)] == [3]
    assert [entry.count for entry in opened.read(NOW + 60)] == [3]
    assert opened.read(NOW + 2 * DAY) == []


def test_a_broken_event_list_is_left_out_and_logged_once(tmp_path, night, caplog):
    (night / "events.sqlite").write_bytes(b"not a database, but long enough to look like one" * 40)
    os.utime(night / "events.sqlite", (NOW, NOW))
    opened = reader(tmp_path)
    assert opened.read(NOW) == opened.read(NOW) == []
    assert len([record for record in caplog.records if "night is left out" in record.message]) == 1


def test_without_runs_and_registry_there_is_nothing(tmp_path):
    assert reader(tmp_path).read(NOW) == []


def test_a_rollouts_reports_say_how_much_worse_the_model_is(tmp_path):
    registry = Registry(tmp_path / "registry")
    report = ModelReport(
        federation="orchard",
        device="pi",
        rollout="r",
        version="v2",
        stage=Stage.KEPT,
        running=ModelMeasurement(examples=50, accuracy=0.9, metrics={"accuracy": 0.9}, latency_ms=1),
        candidate=ModelMeasurement(examples=50, accuracy=0.7, metrics={"accuracy": 0.7}, latency_ms=1),
    )
    with registry.database() as database:
        row = ("r", "v2", "orchard", "{}", "finished", 0, "", NOW, None)
        database.execute("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        insert_target(database, "pi", report.model_dump_json())
        insert_target(database, "pi-2", "{}")
    (found,) = reader(tmp_path).read(NOW)
    assert (found.kind, found.federation, found.subject) == (IncidentKind.TRIAL, "orchard", "pi")
    assert found.lost == pytest.approx(0.2)
    assert found.text == "has 70.00% with v2, and had 90.00% before; the model is kept"


def insert_target(database: sqlite3.Connection, device: str, report: str) -> None:
    row = ("r", device, 1, 0, "kept", report, NOW - 10)
    database.execute("INSERT INTO targets VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def write_jobs(path, *runs: tuple[str, str, str, float]) -> None:
    """A queue with the job `train` of federation `orchard`, and its runs: name, phase, why, end."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE jobs (name TEXT PRIMARY KEY, record TEXT NOT NULL)")
        database.execute("CREATE TABLE runs (run TEXT, job TEXT, due REAL, record TEXT)")
        job = json.dumps({"name": "train", "federation": "orchard"})
        database.execute("INSERT INTO jobs VALUES (?, ?)", ("train", job))
        for name, phase, why, ended_at in runs:
            record = {"name": name, "phase": phase, "why": why, "ended_at": ended_at}
            database.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?)", (name, "train", ended_at, json.dumps(record))
            )


def test_a_job_of_the_queue_is_one_incident_that_its_next_success_ends(tmp_path, night):
    write(night, RunEvent(NOW - 80, EventKind.ROUND, "run failed: given up", "run failed"))
    write_jobs(tmp_path / "jobs.sqlite", ("night", "failed", "given up", NOW - 80))
    (found,) = reader(tmp_path).read(NOW)
    assert (found.kind, found.federation, found.subject, found.text) == (
        IncidentKind.JOB,
        "orchard",
        "train",
        "given up",
    )
    (tmp_path / "jobs.sqlite").unlink()
    done = ("later", "done", "", NOW - 10)
    write_jobs(tmp_path / "jobs.sqlite", ("night", "failed", "given up", NOW - 80), done)
    assert reader(tmp_path).read(NOW) == []
