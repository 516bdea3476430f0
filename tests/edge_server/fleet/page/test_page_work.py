"""Jobs, rollouts and alerts on the page: lists, and actions that are those of the commands."""

import shlex
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge_server.fleet.alerts.alert import Alert, AlertSubject, Phase
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.queue.changes import add_job
from edge_server.fleet.queue.job import Job, JobRun, RunPhase
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.state import QueueRules
from edge_server.fleet.settings.service import ServedFederation, ServiceSettings
from edge_server.releases.registry.registry import Registry, Version
from edge_server.storage import audit_log
from tests.edge_server.fleet.page.service_pages import Stage, staged
from tests.edge_server.fleet.people.people import NOW, fast_passwords

NIGHTLY = Job(
    name="nightly",
    action="run",
    words=("/srv/home.toml", "rounds=2"),
    federation="home",
    folder="/srv",
    where="site=barn",
    since=NOW,
    owner="local:ada",
)
MADE = Version(
    version="home-1",
    federation="home",
    run="home-1",
    round=3,
    rounds=3,
    outcome="finished",
    model="cnn",
    parameters=10,
    created_at=NOW,
    tiers=(),
    key="ab" * 32,
)
SILENT = Alert(
    rule="silent-for",
    severity="warning",
    subject=AlertSubject(kind="device", federation="home", name="pi-1", labels={"device": "pi-1"}),
    text="silent for 3 h",
    remedy="look at its power",
    since=NOW - 10_800,
    phase=Phase.FIRING,
)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    settings = ServiceSettings(federations=(ServedFederation(name="home"),))
    with fast_passwords(), staged(tmp_path, settings=settings) as made:
        yield made


def rows(stage: Stage, name: str) -> list[Any]:
    """A list as a viewer gets it."""
    answer = stage.visitor("vera").get(f"/api/{name}")
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()[name]
    return found


def test_an_operator_starts_pauses_and_stops_a_job_and_each_change_is_recorded_once(stage: Stage) -> None:
    add_job(stage.folder, NIGHTLY, who="local:ada")
    (row,) = rows(stage, "jobs")
    assert (row["job"], row["what"], row["devices"], row["eligible"]) == (
        "nightly",
        "home.toml rounds=2",
        2,
        2,
    )
    operator = stage.visitor("otto")
    for action, wanted in (("jobs.pause", "paused"), ("jobs.start", "active"), ("jobs.stop", "stopped")):
        answer = operator.act(action, job="nightly").json()
        assert answer["command"] == f"edge-server jobs {action[5:]} nightly --service {stage.folder.path}"
        assert rows(stage, "jobs")[0]["wanted"] == wanted
    entries = list(audit_log.read_entries(stage.folder.audit))
    assert [(entry.who, entry.what) for entry in entries] == [
        ("local:ada", "job added"),
        ("user:otto", "job paused"),
        ("user:otto", "job started"),
        ("user:otto", "job stopped"),
    ]
    refused = stage.visitor("vera").act("jobs.start", job="nightly")
    assert refused.status_code == 403
    wrong = operator.act("jobs.stop", job="nightl")
    assert (wrong.status_code, "did you mean 'nightly'" in wrong.json()["error"]) == (400, True)


def test_a_rollout_is_a_job_and_is_stopped_by_it(stage: Stage) -> None:
    registry = Registry(stage.folder.registry)
    registry.enter(MADE, lambda path: None)
    with registry.database() as database:
        begun = ("r-1", "home-1", "home", "{}", "running", 0, "", NOW)
        database.execute("INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", begun)
    operator = stage.visitor("otto")
    listed = operator.get("/api/rollouts").json()
    assert [(row["version"], row["job"]) for row in listed["rollouts"]] == [("home-1", "")]
    assert [(row["version"], row["active"]) for row in listed["versions"]] == [("home-1", False)]
    answer = operator.act("rollouts.start", version="home-1", federation="home", job="push")
    assert answer.status_code == 200, answer.text
    assert rows(stage, "rollouts")[0]["job"] == "push"
    assert rows(stage, "jobs")[0]["what"] == "rollout home-1"
    assert operator.act("rollouts.stop", job="push").status_code == 200
    assert rows(stage, "jobs")[0]["wanted"] == "stopped"
    registry.enter(MADE.model_copy(update={"version": "home-2", "key": None}), lambda path: None)
    assert [row["signed"] for row in operator.get("/api/rollouts").json()["versions"]] == [True, False]
    refused = operator.act("rollouts.start", federation="home", version="home-2", job="forged")
    assert (refused.status_code, "is not signed" in refused.json()["error"]) == (400, True)
    for args in ({"version": "home-9", "job": "other"}, {"version": "home-1", "job": "a b"}):
        assert operator.act("rollouts.start", federation="home", **args).status_code == 400


def test_a_withdrawal_stops_the_rollout_of_the_version(stage: Stage) -> None:
    Registry(stage.folder.registry).enter(MADE, lambda path: None)
    operator, about = stage.visitor("otto"), {"version": "home-1", "federation": "home"}
    assert operator.act("rollouts.start", **about, job="push").status_code == 200
    answer = operator.act("rollouts.withdraw", **about, job="back")
    assert answer.status_code == 200, answer.text
    assert shlex.split(answer.json()["command"]) == [
        *("edge-server", "jobs", "add", "back", "home-1", "--action", "rollout", "--federation", "home"),
        *("--service", str(stage.folder.path), "--", "--withdraw"),
    ]
    listed = {row["job"]: (row["what"], row["wanted"]) for row in rows(stage, "jobs")}
    assert listed == {"push": ("rollout home-1", "stopped"), "back": ("rollout home-1 --withdraw", "active")}
    again = operator.act("rollouts.withdraw", **about, job="again")
    assert (again.status_code, "withdraws home-1 already" in again.json()["error"]) == (400, True)
    assert stage.visitor("vera").act("rollouts.withdraw", **about, job="x").status_code == 403


def test_a_job_is_added_with_a_file_of_the_folder_or_a_recipe(stage: Stage) -> None:
    operator = stage.visitor("otto")
    (stage.folder.path / "home.toml").write_text('recipe = "fedavg"\n[federation]\nname = "home"\n')
    nightly = {
        "job": "nightly",
        "words": "home.toml rounds=2",
        "cron": "0 2 * * SUN",
        "zone": "Europe/Berlin",
    }
    answer = operator.act("jobs.add", **nightly, where="site=barn", min_eligible="2")
    assert answer.status_code == 200, answer.text
    assert operator.act("jobs.add", job="once", words="fedavg federation.name=home").status_code == 200
    listed = {row["job"]: row for row in rows(stage, "jobs")}
    assert (listed["nightly"]["schedule"], listed["nightly"]["where"]) == (
        *("0 2 * * SUN (Europe/Berlin)", "site=barn"),
    )
    assert (listed["once"]["schedule"], listed["once"]["state"]) == ("", "waiting")
    entries = [(entry.who, entry.what, entry.target) for entry in audit_log.read_entries(stage.folder.audit)]
    assert entries == [("user:otto", "job added", "nightly"), ("user:otto", "job added", "once")]
    assert stage.visitor("vera").act("jobs.add", **nightly).status_code == 403


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"words": "../secret.toml"}, "no such file in the service's folder"),
        ({"words": "/etc/passwd"}, "no such file in the service's folder"),
        ({"words": "fedavg --metrics 0"}, "'--metrics' is not set from here"),
        ({"words": "fedavg model.name=os:abort"}, "'model.name=os:abort' is not set from here"),
        ({"words": "fedavg federation.name=other"}, "other"),
        ({"words": "fedavg rounds=x"}, "rounds"),
        ({"cron": "every day"}, "is not a cron expression"),
        ({"cron": "0 2 * * *", "every": "6h"}, "not both"),
        ({"every": "6h", "zone": "Mars"}, "there is no time zone"),
        ({"min_eligible": "few"}, "is not a number of devices"),
        ({"where": "site="}, "is not a condition on a label"),
        ({"job": "a b"}, "a job's name is 1 to 40 letters"),
    ],
)
def test_a_job_that_cannot_run_is_refused(stage: Stage, args: dict[str, str], says: str) -> None:
    given = {"job": "try", "words": "fedavg federation.name=home", **args}
    answer = stage.visitor("otto").act("jobs.add", **given)
    assert (answer.status_code, says in answer.json()["error"]) == (400, True), answer.text
    assert rows(stage, "jobs") == []


def test_a_job_has_its_runs_and_the_end_of_its_log_for_operators(stage: Stage) -> None:
    add_job(stage.folder, NIGHTLY, who="local:ada")
    run = JobRun(name="nightly-1", job="nightly", due=NOW, by="request", phase=RunPhase.DONE, began_at=NOW)
    with closing(JobJournal(stage.folder.jobs)) as journal:
        queue = journal.load_queue(QueueRules())
        journal.save(queue, queue.with_run(run))
    folder = stage.folder.runs / "nightly-1"
    folder.mkdir(parents=True)
    (folder / "job.log").write_text("".join(f"line {number}\n" for number in range(300)) + "a\x1b[2Jb\n")
    found = stage.visitor("otto").get("/api/job/nightly").json()
    assert [row["name"] for row in found["runs"]] == ["nightly-1"]
    assert (len(found["log"]), found["log"][0], found["log"][-1]) == (200, "line 101", "a\\x1b[2Jb")
    seen = stage.visitor("vera").get("/api/job/nightly").json()
    assert (seen["runs"], seen["log"]) == (found["runs"], [])
    assert stage.visitor("vera").get("/api/job/daily").status_code == 404


def test_alerts_are_listed_and_silenced(stage: Stage) -> None:
    with closing(AlertStore(stage.folder.alerts)) as store:
        store.save({}, {SILENT.key: SILENT}, (), now=NOW)
    assert rows(stage, "alerts")[0]["state"] == "firing"
    operator = stage.visitor("otto")
    given = {"where": "device=pi-1", "lasts": "2h", "reason": "new router"}
    assert operator.act("alerts.silence", **given).status_code == 200
    listed = operator.get("/api/alerts").json()
    assert listed["alerts"][0]["state"] == "silenced"
    assert (listed["silences"][0]["who"], listed["silences"][0]["until"]) == ("user:otto", NOW + 7200)
    assert operator.act("alerts.unsilence", number="1").status_code == 200
    assert rows(stage, "alerts")[0]["state"] == "firing"
    about = {"rule": "silent-for", "kind": "device", "name": "pi-1", "federation": "home"}
    assert stage.visitor("vera").act("alerts.acknowledge", **about).status_code == 403
    assert operator.act("alerts.acknowledge", **about).status_code == 200
    assert operator.act("alerts.acknowledge", **{**about, "name": "pi-9"}).status_code == 400
    assert operator.act("alerts.acknowledge", **{**about, "kind": "cat"}).status_code == 400
    (row,) = rows(stage, "alerts")
    assert (row["state"], row["acknowledged_by"], row["place"]) == (
        *("acknowledged", "user:otto"),
        "#devices/home/pi-1",
    )
    for number in ("1", "x", "9" * 40):
        assert operator.act("alerts.unsilence", number=number).status_code == 400
    assert operator.act("alerts.silence", **{**given, "lasts": "long"}).status_code == 400
