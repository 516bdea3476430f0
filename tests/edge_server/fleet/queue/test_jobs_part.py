"""The service's queue with real processes: pause, stop, end of the service, a job that cannot start."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.fleet.part import ServiceContext
from edge_server.fleet.queue.changes import add_job, pause_job, start_job, stop_job
from edge_server.fleet.queue.job import JobRun, RunPhase
from edge_server.fleet.queue.jobs_part import JobsPart
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.overview import read_overviews
from edge_server.fleet.queue.state import StartRun
from edge_server.fleet.settings.service import JobSettings, ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from tests.edge_server.fleet.queue.jobs import job

DEADLINE_S = 30
ME = "local:me"
SCRIPT = "trap 'exit 143' TERM; trap 'exit 130' INT; echo ready $0; read line < pipe"


class Served:
    """A folder with a part that is ticked by hand."""

    def __init__(self, path: Path) -> None:
        self.folder = ServiceFolder(path)
        self.inventory = Inventory(self.folder.inventory)
        self.part = self.again()

    def again(self, command: Callable[[StartRun], list[str]] | None = None) -> JobsPart:
        """Another service in the folder."""
        settings = ServiceSettings(jobs=JobSettings(keep_runs=1))
        context = ServiceContext(self.folder, settings, self.inventory, lambda *_: None)
        self.part = JobsPart(context, command or self._command)
        return self.part

    def _command(self, start: StartRun) -> list[str]:
        run = self.folder.runs / start.run.name
        run.mkdir(parents=True, exist_ok=True)
        if not (run / "pipe").exists():
            os.mkfifo(run / "pipe")
        return ["sh", "-c", f"cd {run}; {SCRIPT}", str(start.run.attempt)]

    def run(self, name: str) -> JobRun | None:
        """The newest run of a job, as it is on disk."""
        with closing(JobJournal(self.folder.jobs)) as journal:
            return next(iter(journal.runs(name, most=1)), None)

    def until(self, name: str, phase: RunPhase, *, says: str = "") -> JobRun:
        """Tick until a job's run is in a phase, and its log has a line."""
        until = time.monotonic() + DEADLINE_S
        while True:
            self.part.tick(time.time())
            run = self.run(name)
            if run is not None and run.phase is phase and says in self.log(run):
                return run
            assert time.monotonic() < until, f"{run}"

    def log(self, run: JobRun) -> str:
        """The log of a run."""
        path = self.folder.runs / run.name / "job.log"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    add_job(served.folder, job("night", folder=str(tmp_path)), who=ME)
    yield served
    served.part.stop()
    served.inventory.close()


def test_a_paused_job_goes_on_in_the_same_run(served: Served) -> None:
    first = served.until("night", RunPhase.RUNNING, says="ready 1")
    pause_job(served.folder, "night", who=ME)
    served.until("night", RunPhase.SUSPENDED)
    start_job(served.folder, "night", who=ME, now=time.time())
    again = served.until("night", RunPhase.RUNNING, says="ready 2")
    assert again.name == first.name


def test_a_stopped_job_is_asked_to_complete_its_run(served: Served) -> None:
    served.until("night", RunPhase.RUNNING, says="ready 1")
    stop_job(served.folder, "night", who=ME)
    assert served.until("night", RunPhase.STOPPED).code == 130


def test_a_job_starts_when_devices_have_come(served: Served) -> None:
    add_job(served.folder, job("dozen", federation="barn", min_eligible=1, folder="/"), who=ME)
    served.until("dozen", RunPhase.WAITING)
    with closing(Inventory(served.folder.inventory)) as inventory:
        inventory.add("barn", "pi-1", alive=True)
    served.until("dozen", RunPhase.RUNNING)


def test_a_service_that_ends_suspends_its_jobs_and_the_next_goes_on(served: Served) -> None:
    first = served.until("night", RunPhase.RUNNING, says="ready 1")
    served.part.stop()
    suspended = served.run("night")
    assert suspended is not None
    assert (suspended.phase, suspended.code) == (RunPhase.SUSPENDED, 143)
    served.again()
    assert served.until("night", RunPhase.RUNNING, says="ready 2").name == first.name


def test_a_failed_job_has_its_reason_in_the_list(served: Served) -> None:
    says = "echo starting; echo 'edge-server: the broker is not there: look at --broker' >&2; exit 2"
    served.part.stop()
    served.again(lambda start: ["sh", "-c", says])
    run = served.until("night", RunPhase.SUSPENDED)
    assert run.why == "broke off with exit code 2: the broker is not there: look at --broker"
    (served.folder.runs / run.name / "summary.json").touch()
    start_job(served.folder, "night", who=ME, now=time.time())
    run = served.until("night", RunPhase.FAILED)
    assert run.why.endswith("(exit code 2): the broker is not there: look at --broker")
    overview = read_overviews(served.folder, at_once=1, now=time.time())["night"]
    assert (overview.state, overview.why) == ("failed", run.why)


def test_the_folders_of_old_runs_are_removed(served: Served) -> None:
    def end(start: StartRun) -> list[str]:
        return ["true"]

    served.part.stop()
    served.again(end)
    first = served.until("night", RunPhase.DONE)
    start_job(served.folder, "night", who=ME, now=time.time())
    until = time.monotonic() + DEADLINE_S
    while (served.folder.runs / first.name).exists():
        served.part.tick(time.time())
        assert time.monotonic() < until
    assert served.until("night", RunPhase.DONE, says="true").name != first.name


def test_a_job_of_a_federation_without_a_table_fails_and_says_so(served: Served) -> None:
    served.part.stop()
    context = ServiceContext(served.folder, ServiceSettings(), served.inventory, lambda *_: None)
    served.part = JobsPart(context)
    run = served.until("night", RunPhase.FAILED)
    assert "cannot be started: service.toml names no federation" in served.log(run)
    assert "exit code 2" in run.why


def test_a_process_that_the_machine_refuses_is_tried_again(served: Served) -> None:
    def refuse(start: StartRun) -> list[str]:
        raise BlockingIOError("no more processes")

    served.part.stop()
    served.again(refuse)
    run = served.until("night", RunPhase.SUSPENDED)
    assert run.not_before > time.time()
    assert "no more processes" in served.log(run)
