"""The log of a job's run, as a whole or while it is written."""

import itertools
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.plain_text import plain
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.supervisor import LOG, OLD_LOG
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError, nearest

LOOK_EVERY_S = 0.25
END_BYTES = 256_000  # Bytes of a log's end that are read for its last lines
SUPERVISOR = "---"  # Lines of the supervisor begin so
LONGEST_REASON = 300


@dataclass(frozen=True)
class RunLog:
    folder: ServiceFolder
    job: str
    run: str

    @property
    def path(self) -> Path:
        return self.folder.runs / self.run / LOG

    def is_over(self) -> bool:
        """Whether nothing more is written."""
        with closing(JobJournal(self.folder.jobs)) as journal:
            newest = journal.runs(self.job, most=1)
        return not newest or newest[0].name != self.run or newest[0].over


def find_log(folder: ServiceFolder, name: str) -> RunLog:
    """The log of a job's newest run, or of the run of that name; raises `ConfigError`."""
    with closing(JobJournal(folder.jobs)) as journal:
        jobs = journal.jobs()
        runs = {run.name: job for job in jobs for run in journal.runs(job, most=1000)}
        newest = journal.runs(name, most=1) if name in jobs else []
    if name in runs:
        return RunLog(folder, runs[name], name)
    if name not in jobs:
        raise ConfigError(f"there is no job '{name}' in {folder.path}{nearest(name, jobs)}")
    if not newest:
        raise ConfigError(
            f"job '{name}' has not run yet", remedy=f"`edge-server jobs show {name}` shows what it waits for"
        )
    return RunLog(folder, name, newest[0].name)


def read_log(log: RunLog, *, follow: bool = False) -> Iterator[str]:
    """The log as blocks of text; with `follow` the blocks continue until the run is over."""
    old = log.path.with_name(OLD_LOG)
    if old.exists():
        yield old.read_text(errors="replace")
    position, file = 0, log.path.stat().st_ino if log.path.exists() else 0
    waited = threading.Event()
    while True:
        over = not follow or log.is_over()
        position, file, text = _rest(log.path, position, file)
        if text:
            yield text
        if over:
            return
        waited.wait(LOOK_EVERY_S)


def last_lines(path: Path, most: int) -> list[str]:
    """At most so many lines of the end of a log; only `END_BYTES` are read."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - END_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return []
    return [plain(line) for line in text.splitlines()[-most:]]


def last_line(path: Path) -> str:
    """The last line of a run's last attempt, shortened; empty if there is none."""
    said = itertools.takewhile(lambda line: not line.startswith(SUPERVISOR), reversed(last_lines(path, 50)))
    return next(filter(None, map(str.strip, said)), "").removeprefix("edge-server: ")[:LONGEST_REASON]


def _rest(path: Path, position: int, file: int) -> tuple[int, int, str]:
    """What has been written since, also if the file was replaced by a new one."""
    try:
        with path.open("rb") as log:
            number = path.stat().st_ino
            log.seek(position if number == file else 0)
            data = log.read()
            return log.tell(), number, data.decode(errors="replace")
    except FileNotFoundError:
        return position, file, ""
