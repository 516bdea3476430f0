"""What operators change and see: start, pause, stop, remove, the overview, the log."""

from contextlib import closing
from pathlib import Path

import pytest

from edge_server.fleet.queue.changes import add_job, pause_job, remove_job, start_job, stop_job
from edge_server.fleet.queue.job import Every, Wanted
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.log_reader import find_log, read_log
from edge_server.fleet.queue.overview import JobOverview, read_overviews
from edge_server.fleet.queue.state import Queue
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError
from tests.edge_server.fleet.queue.jobs import NOW, Driver, job

ME = "local:me"


@pytest.fixture
def folder(tmp_path: Path) -> ServiceFolder:
    return ServiceFolder(tmp_path)


def saved(folder: ServiceFolder, driver: Driver, before: Queue | None = None) -> None:
    with closing(JobJournal(folder.jobs)) as journal:
        assert journal.save(before or journal.load_queue(), driver.queue)


def overview(folder: ServiceFolder, name: str, *, now: float = NOW) -> JobOverview:
    with folder.lock_folder():
        return read_overviews(folder, at_once=2, now=now)[name]


def test_each_change_is_in_the_audit_log(folder: ServiceFolder) -> None:
    add_job(folder, job("night"), who=ME)
    pause_job(folder, "night", who=ME)
    start_job(folder, "night", who="user:anna", now=NOW)
    stop_job(folder, "night", who=ME)
    remove_job(folder, "night", who=ME)
    entries = list(audit_log.read_entries(folder.audit))
    assert [(entry.what, entry.before, entry.after) for entry in entries[1:4]] == [
        ("job paused", "active", "paused"),
        ("job started", "paused", "active"),
        ("job stopped", "active", "stopped"),
    ]
    assert [entry.what for entry in (entries[0], entries[4])] == ["job added", "job removed"]
    assert entries[0].after == entries[4].before
    assert {entry.target for entry in entries} == {"night"}
    assert entries[2].who == "user:anna"


def test_a_change_that_is_refused_is_not_in_the_audit_log(folder: ServiceFolder) -> None:
    with pytest.raises(ConfigError, match="there is no job 'night'"):
        stop_job(folder, "night", who=ME)
    assert not folder.audit.exists()


def test_start_lets_a_paused_job_go_on_and_any_other_run_now(folder: ServiceFolder) -> None:
    add_job(folder, job("hourly", schedule=Every(seconds=3600)), who=ME)
    assert start_job(folder, "hourly", who=ME, now=NOW + 5).asked == 1
    pause_job(folder, "hourly", who=ME)
    paused = start_job(folder, "hourly", who=ME, now=NOW + 5)
    assert (paused.asked, paused.wanted, paused.since) == (1, Wanted.ACTIVE, NOW + 5)
    stop_job(folder, "hourly", who=ME)
    assert start_job(folder, "hourly", who=ME, now=NOW + 9).asked == 2


def test_the_overview_says_what_a_job_waits_for(folder: ServiceFolder) -> None:
    add_job(folder, job("first"), who=ME)
    add_job(folder, job("second"), who=ME)
    add_job(folder, job("dozen", federation="barn", min_eligible=12, where="site=barn"), who=ME)
    with closing(Inventory(folder.inventory)) as inventory:
        inventory.add("barn", "pi-1", alive=True, own_labels={"site": "barn"})
        inventory.add("barn", "pi-2", alive=True, own_labels={"site": "field"})
        inventory.add("barn", "pi-3", own_labels={"site": "barn"})
    driver = Driver.of(*(overview(folder, name).job for name in ("first", "second", "dozen")))
    saved(folder, driver)
    assert overview(folder, "first").state == "running"
    assert overview(folder, "second").why == "federation home is busy with job first"
    dozen = overview(folder, "dozen")
    assert (dozen.state, dozen.devices, dozen.eligible) == ("waiting", 2, 1)
    assert dozen.why == "waits for 12 eligible devices, 1 is"


def test_without_a_service_nothing_starts(folder: ServiceFolder) -> None:
    add_job(folder, job("night"), who=ME)
    found = read_overviews(folder, at_once=2, now=NOW)["night"]
    assert (found.state, found.why) == ("waiting", "no service runs in this folder: edge-server serve")
    assert overview(folder, "night").why == "starts in a moment"


def test_the_overview_of_a_schedule(folder: ServiceFolder) -> None:
    add_job(folder, job("hourly", schedule=Every(seconds=3600)), who=ME)
    assert overview(folder, "hourly").next_at == NOW + 3600
    assert overview(folder, "hourly").state == "scheduled"
    driver = Driver.of(overview(folder, "hourly").job)
    driver.tick(3600)
    driver.tick(3600)
    driver.end("hourly", 1)
    saved(folder, driver)
    found = overview(folder, "hourly")
    assert (found.state, found.next_at, found.missed) == ("scheduled", NOW + 3 * 3600, 1)
    assert found.why == "it failed (exit code 1): see its log"
    stop_job(folder, "hourly", who=ME)
    assert (overview(folder, "hourly").state, overview(folder, "hourly").next_at) == ("stopped", None)


def test_the_log_of_the_newest_run_is_followed_to_its_end(folder: ServiceFolder) -> None:
    add_job(folder, job("night"), who=ME)
    with pytest.raises(ConfigError, match="'night' has not run yet"):
        find_log(folder, "night")
    driver = Driver.of(job("night"))
    saved(folder, driver)
    log = find_log(folder, "night")
    assert log.run == driver.run("night").name
    log.path.parent.mkdir(parents=True)
    log.path.write_text("one\n")
    followed = read_log(log, follow=True)
    assert next(followed) == "one\n"
    with log.path.open("a") as file:
        file.write("two\n")
    assert next(followed) == "two\n"
    log.path.replace(log.path.with_name("job.log.1"))
    log.path.write_text("three\n")
    before = driver.queue
    driver.end("night")
    saved(folder, driver, before)
    assert list(followed) == ["three\n"]
    assert list(read_log(find_log(folder, log.run))) == ["one\ntwo\n", "three\n"]


def test_no_log_of_an_unknown_job(folder: ServiceFolder) -> None:
    add_job(folder, job("nightly"), who=ME)
    with pytest.raises(ConfigError, match="did you mean 'nightly'"):
        find_log(folder, "nigthly")
