"""The queue on disk: what two processes write, and what a later one reads."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.fleet.queue.job import Cron, Every, RunPhase, Wanted
from edge_server.fleet.queue.journal import JobJournal
from schemas.errors import ConfigError
from tests.edge_server.fleet.queue.jobs import NOW, Driver, job


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JobJournal]:
    with closing(JobJournal(tmp_path / "jobs.sqlite")) as journal:
        yield journal


def test_jobs_are_read_as_they_were_added(journal: JobJournal) -> None:
    cron = Cron(expression="0 2 * * SUN", zone="Europe/Berlin")
    added = [job("a", where="site=barn", min_eligible=3), job("b", schedule=cron, weight=2, shared=True)]
    for definition in added:
        journal.add(definition)
    assert list(journal.jobs().values()) == added


def test_a_name_is_taken_once(journal: JobJournal) -> None:
    journal.add(job("night"))
    with pytest.raises(ConfigError, match="there is a job 'night' already"):
        journal.add(job("night", federation="other"))
    assert journal.job("night").federation == "home"


def test_an_unknown_name_is_named_with_the_nearest(journal: JobJournal) -> None:
    journal.add(job("nightly"))
    with pytest.raises(ConfigError, match="did you mean 'nightly'"):
        journal.change("nigthly", lambda known: known)


def test_a_queue_is_loaded_as_it_was_saved(journal: JobJournal) -> None:
    jobs = [job("a"), job("b"), job("hourly", federation="other", schedule=Every(seconds=3600))]
    for definition in jobs:
        journal.add(definition)
    before = journal.load_queue()
    driver = Driver.of(*jobs)
    driver.tick(3600)
    driver.end("a", 143)
    assert journal.save(before, driver.queue)
    assert journal.load_queue() == driver.queue


def test_what_has_not_changed_is_not_written(journal: JobJournal) -> None:
    journal.add(job("a"))
    driver = Driver.of(job("a"))
    assert journal.save(journal.load_queue(), driver.queue)
    with closing(JobJournal(journal.path)) as other:
        assert other.has_changed()
        before = driver.queue
        driver.tick(30)
        assert driver.queue.runs != before.runs
        assert journal.save(before, driver.queue)
        assert not other.has_changed()


def test_the_service_notices_what_commands_write(journal: JobJournal) -> None:
    assert journal.has_changed()
    assert not journal.has_changed()
    with closing(JobJournal(journal.path)) as command:
        command.add(job("a"))
    assert journal.has_changed()
    assert not journal.has_changed()


def test_a_decision_about_a_removed_job_is_not_written(journal: JobJournal) -> None:
    for name in ("a", "b"):
        journal.add(job(name, federation=name))
    driver = Driver.of(job("a", federation="a"), job("b", federation="b"))
    journal.remove("a")
    assert not journal.save(journal.load_queue(), driver.queue)
    assert journal.load_queue().runs == {}


def test_a_job_is_removed_when_its_run_is_over(journal: JobJournal) -> None:
    journal.add(job("a"))
    driver = Driver.of(job("a"))
    journal.save(journal.load_queue(), driver.queue)
    with pytest.raises(ConfigError, match="'a' is running: first `edge-server jobs stop a`"):
        journal.remove("a")
    before = driver.queue
    driver.end("a")
    journal.save(before, driver.queue)
    journal.remove("a")
    queue = journal.load_queue()
    assert (queue.jobs, queue.runs, queue.progress, journal.runs("a", most=9)) == ({}, {}, {}, [])


def test_old_runs_leave_the_file(journal: JobJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_server.fleet.queue.journal.KEPT_RUNS", 3)
    journal.add(job("a"))
    driver = Driver.of(job("a"))
    for asked in range(2, 8):
        before = driver.queue
        driver.end("a")
        driver.want("a", Wanted.ACTIVE, asked=asked)
        driver.tick(1)
        journal.save(before, driver.queue)
    runs = journal.runs("a", most=99)
    assert [run.due for run in runs] == [NOW + 6, NOW + 5, NOW + 4]
    assert runs[0].phase is RunPhase.RUNNING


def test_a_record_of_another_release_is_named(journal: JobJournal) -> None:
    with closing(sqlite3.connect(journal.path)) as other, other:
        other.execute('INSERT INTO jobs VALUES (\'new\', \'{"name": "new", "colour": "red"}\')')
    with pytest.raises(ConfigError, match="not written by this release"):
        journal.jobs()
