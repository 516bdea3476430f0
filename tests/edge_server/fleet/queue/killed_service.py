"""A fleet service with jobs only, which kills itself at a chosen moment and is started again.

`python -m tests.edge_server.fleet.queue.killed_service FOLDER` reads moments from its input, one a
line, such as `written 3`. For each of them it makes a folder with three jobs, kills the service with SIGKILL
at that moment, starts it again until all jobs are over, and prints what it found as one line of JSON. Each
service is a fork, for the imports take long.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from edge_server.fleet.part import ServiceContext
from edge_server.fleet.queue import journal
from edge_server.fleet.queue.job import Every
from edge_server.fleet.queue.jobs_part import JobProcesses, JobsPart
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.state import StartRun
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from tests.edge_server.fleet.queue.jobs import job

DEADLINE_S = 60
WORK = (
    'cd "$0"; test -d work && exit 0; echo begun >> begun; read line < pipe; mkdir work && echo done >> done'
)
"""A command that can be repeated, as `edge-server run` can: it works once."""


class Moments:
    """Kills this process at the chosen moment; counts them all otherwise."""

    def __init__(self, chosen: str) -> None:
        self._chosen = chosen
        self._counts: dict[str, int] = {}

    def __call__(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
        if f"{what} {self._counts[what]}" == self._chosen:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: object, name: str, before: str, after: str) -> None:
        """Make moments before and after each call of a function; this process is about to end anyway."""
        function = getattr(owner, name)

        def observed(*args: object) -> object:
            self(before)
            result = function(*args)
            self(after)
            return result

        setattr(owner, name, observed)


def command(folder: ServiceFolder) -> Callable[[StartRun], list[str]]:
    """The command of each attempt: it works when somebody writes into its pipe."""

    def make(start: StartRun) -> list[str]:
        run = folder.runs / start.run.name
        run.mkdir(parents=True, exist_ok=True)
        if not (run / "pipe").exists():
            os.mkfifo(run / "pipe")
        return ["sh", "-c", WORK, str(run)]

    return make


def serve(folder: ServiceFolder, moments: Moments) -> None:
    """Serve until all jobs are over."""
    moments.around(journal, "write_runs", "writing", "written")
    moments.around(JobProcesses, "start", "starting", "started")
    inventory = Inventory(folder.inventory)
    part = JobsPart(ServiceContext(folder, ServiceSettings(), inventory, lambda *_: None), command(folder))
    waited, until = threading.Event(), time.monotonic() + DEADLINE_S
    while not is_over(part) and time.monotonic() < until:
        part.tick(time.time())
        let_work(folder)
        waited.wait(0.01)
    part.stop()


def is_over(part: JobsPart) -> bool:
    """Whether each job has had a run that is over."""
    queue = part.queue
    return len(queue.runs) == 3 and all(run.over for run in queue.runs.values())


def let_work(folder: ServiceFolder) -> None:
    """Let each command that has begun come to its end."""
    for pipe in folder.runs.glob("*/pipe"):
        try:
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            continue  # nobody reads
        os.write(descriptor, b"go\n")
        os.close(descriptor)


def add_jobs(folder: ServiceFolder, now: float) -> None:
    """Two jobs of one federation that run once, and one of another that was due a moment ago."""
    with closing(JobJournal(folder.jobs)) as queue:
        queue.add(job("first", folder=str(folder.path)))
        queue.add(job("second", folder=str(folder.path)))
        schedule = Every(seconds=3600)
        queue.add(
            job("hourly", federation="other", folder=str(folder.path), schedule=schedule, since=now - 3601)
        )


def in_fork(work: Callable[[], None]) -> int:
    """Do something in a process of its own; returns its wait status."""
    pid = os.fork()
    if pid:
        return os.waitpid(pid, 0)[1]
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def found(folder: ServiceFolder) -> dict[str, object]:
    """What the folder has at the end."""
    with closing(JobJournal(folder.jobs)) as queue:
        runs = [run for name in queue.jobs() for run in queue.runs(name, most=10)]
        progress = queue.load_queue().progress["hourly"]
    return {
        "runs": sorted(f"{run.job} {run.phase}" for run in runs),
        "worked": sorted((folder.runs / run.name / "done").read_text() for run in runs),
        "missed": progress.missed,
        "folders": len(list(folder.runs.iterdir())),
    }


def main(base: Path) -> None:
    """Try each moment of the input."""
    for number, line in enumerate(sys.stdin):
        folder = ServiceFolder(base / str(number))
        folder.path.mkdir()
        add_jobs(folder, time.time())
        status = in_fork(partial(serve, folder, Moments(line.strip())))
        if killed := os.WIFSIGNALED(status):
            status = in_fork(partial(serve, folder, Moments("")))
        print(json.dumps({**found(folder), "killed": killed, "status": status}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
