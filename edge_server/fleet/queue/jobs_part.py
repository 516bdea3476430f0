"""Runs the queue of jobs: the machine decides, the journal keeps it, the processes do it."""

import contextlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.fleet.queue import job_actions, journal, log_reader, overview, state, supervisor
from edge_server.fleet.queue.job import JobRun
from edge_server.fleet.queue.machine import BAD_USAGE, FAILED, INTERRUPTED, SUSPENDED, step
from edge_server.fleet.queue.supervisor import LOCK, LOG, OUTCOME, started_at
from edge_server.storage.service_folder import ServiceFolder, is_locked
from schemas.errors import ConfigError
from schemas.messages import Birth, Death


@dataclass(frozen=True)
class Outcome:
    """How an attempt has ended; `code` is None if nobody knows."""

    code: int | None


class JobProcesses:
    """Starts, signals and observes the processes of runs; `runs` is the folder of their run folders."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self.own: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, run: str, attempt: int, command: Sequence[str], directory: str) -> None:
        """Start an attempt in its own session, so that Ctrl-C in a terminal reaches the service alone."""
        folder = self._runs / run
        folder.mkdir(parents=True, exist_ok=True)
        script = [sys.executable, "-I", supervisor.__file__]
        with (folder / LOG).open("ab") as log:
            self.own[run] = subprocess.Popen(
                [*script, str(os.getpid()), str(folder), str(attempt), directory, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def note(self, run: str, line: str) -> None:
        folder = self._runs / run
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("a") as log:
            log.write(f"--- {line}\n")

    def outcome(self, run: str, attempt: int) -> Outcome | None:
        """How an attempt has ended; None while it runs."""
        own = self.own.get(run)
        if own is not None and own.poll() is None:
            return None
        if is_locked(self._runs / run / LOCK):
            return None
        self.own.pop(run, None)
        return Outcome(_code(self._runs / run / OUTCOME, attempt))

    def suspend(self, run: str) -> None:
        """Ask the process to end so that another attempt can go on."""
        self._signal(run, signal.SIGTERM)

    def end(self, run: str) -> None:
        """Ask the process to complete its run and end."""
        self._signal(run, signal.SIGINT)

    def kill(self, run: str) -> None:
        """End the process with all that it has started."""
        self._signal(run, signal.SIGKILL, os.killpg)

    def _signal(self, run: str, number: signal.Signals, send: Callable[[int, int], None] = os.kill) -> None:
        pid = self._pid(run)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                send(pid, number)

    def _pid(self, run: str) -> int | None:
        """The supervisor's process, if it still runs."""
        own = self.own.get(run)
        if own is not None:
            return own.pid if own.poll() is None else None
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            holder = json.loads((self._runs / run / LOCK).read_text())
            if holder["ticks"] is not None and started_at(holder["pid"]) == holder["ticks"]:
                return int(holder["pid"])
        return None


def _code(path: Path, attempt: int) -> int | None:
    """The exit code that an attempt has left; an interruption that was meant to suspend is a suspension."""
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        outcome = json.loads(path.read_text())
        if outcome["attempt"] != attempt:
            return None
        code = int(outcome["code"])
        suspended = outcome["signalled"] == "TERM" and code in (INTERRUPTED, -signal.SIGTERM)
        return SUSPENDED if suspended else code
    return None


log = logging.getLogger(__name__)

CHANGED_FLEET_EVERY_S, FLEET_EVERY_S = 2.0, 60.0
"""Seconds between two looks into the inventory: after a birth, a death or a command, and without one."""
POLL_S = 0.1  # Seconds between two looks at the processes while the service ends

MakeCommand = Callable[[state.StartRun], list[str]]


class JobsPart(Part):
    """The queue of jobs; `make_command` makes the command line of an attempt."""

    def __init__(self, context: ServiceContext, make_command: MakeCommand | None = None) -> None:
        self._context = context
        # Jobs have working directories of their own.
        self._folder = ServiceFolder(context.folder.path.resolve())
        self._journal = journal.JobJournal(self._folder.jobs)
        self._processes = JobProcesses(self._folder.runs)
        self._make_command = make_command or self._command
        rules = context.settings.jobs
        self.queue = self._journal.load_queue(state.QueueRules(at_once=rules.at_once, grace_s=rules.grace_s))
        self._fleet: dict[str, state.DevicesOfJob] = {}
        self._fleet_at = 0.0
        self._fleet_changed = False
        self._inventory_version = 0

    def on_message(self, heard: Heard, now: float) -> None:
        self._fleet_changed |= isinstance(heard.message, Birth | Death)

    def tick(self, now: float) -> None:
        if self._journal.has_changed():
            self._apply(state.JobsChanged(self._journal.jobs()), now)
            self._fleet_at = 0.0
        self._look_at_processes(now)
        self._look_at_devices(now)
        self._apply(state.Tick(self._fleet), now)

    def stop(self) -> None:
        """Suspend what runs, and wait for it; a later service goes on with it."""
        self._apply(state.Closing(), time.time())
        for run in self.queue.on():
            log.info("waiting for %s to be suspended", run.name)
        waited = threading.Event()
        while self.queue.on():
            self._look_at_processes(time.time())
            self._apply(state.Tick(self._fleet), time.time())
            waited.wait(POLL_S)
        self._journal.close()

    def _look_at_processes(self, now: float) -> None:
        for run in self.queue.on():
            outcome = self._processes.outcome(run.name, run.attempt)
            if outcome is not None:
                folder = self._folder.runs / run.name
                over = job_actions.ACTIONS[self.queue.jobs[run.job].action].is_over(folder)
                said = log_reader.last_line(folder / LOG)
                self._apply(state.RunEnded(run.name, run.attempt, outcome.code, over, said), now)

    def _look_at_devices(self, now: float) -> None:
        """Renew the view of the devices if it is old and a run depends on it."""
        version = self._context.inventory.changed_elsewhere()
        changed = self._fleet_changed or version != self._inventory_version
        depends = any(not run.over for run in self.queue.runs.values())
        if depends and not 0 <= now - self._fleet_at < (CHANGED_FLEET_EVERY_S if changed else FLEET_EVERY_S):
            self._fleet = overview.devices_of_jobs(self._context.inventory, self.queue.jobs.values())
            self._fleet_at, self._fleet_changed, self._inventory_version = now, False, version

    def _apply(self, event: state.Event, now: float) -> None:
        """Apply an event; what follows is on disk before it is done."""
        after, commands = step(self.queue, event, now)
        if not self._journal.save(self.queue, after):
            log.info("a job was removed meanwhile; the queue is read again")
            self.queue = self._journal.load_queue(self.queue.rules)
            return
        changed = _changed_runs(self.queue.runs, after.runs)
        self.queue = after
        for run in changed:
            self._on_change(run)
        for command in commands:
            self._do(command, now)

    def _do(self, command: state.Command, now: float) -> None:
        match command:
            case state.StartRun():
                self._start(command, now)
            case state.SuspendRun(run):
                self._processes.suspend(run)
            case state.EndRun(run):
                self._processes.end(run)
            case state.KillRun(run):
                log.warning("%s does not end on request and is killed", run)
                self._processes.kill(run)

    def _start(self, command: state.StartRun, now: float) -> None:
        run = command.run
        try:
            arguments = self._make_command(command)
            self._processes.start(run.name, run.attempt, arguments, command.job.folder)
        except ConfigError as error:
            self._fail(run, state.RunEnded(run.name, run.attempt, BAD_USAGE, said=str(error)), error, now)
        except OSError as error:
            ended = state.RunEnded(run.name, run.attempt, FAILED, over=False, said=str(error))
            self._fail(run, ended, error, now)

    def _fail(self, run: JobRun, ended: state.RunEnded, error: Exception, now: float) -> None:
        """A run that cannot be started is over, or is tried again if the machine refused a process."""
        log.error("job %s cannot be started: %s", run.job, error)
        self._processes.note(run.name, f"cannot be started: {error}")
        self._apply(ended, now)

    def _command(self, command: state.StartRun) -> list[str]:
        served = self._context.settings.federation(command.job.federation)
        run = self._folder.runs / command.run.name
        return job_actions.command_of(command.job, run, self._folder, served)

    def _on_change(self, run: JobRun) -> None:
        log.info("job %s: run %s is %s%s", run.job, run.name, run.phase, f": {run.why}" if run.why else "")
        keep = self._context.settings.jobs.keep_runs
        if run.over and keep:
            old = self._journal.runs(run.job, most=keep + 100)[keep:]
            remove_run_folders(self._folder.runs, [gone.name for gone in old])


def _changed_runs(before: Mapping[str, JobRun], after: Mapping[str, JobRun]) -> list[JobRun]:
    """The runs that have begun or entered another phase."""

    def stage(run: JobRun | None) -> object:
        return run and (run.name, run.phase, run.attempt)

    return [run for job, run in after.items() if stage(before.get(job)) != stage(run)]


GONE = ".gone-"  # Begin of the name of a folder that is about to be deleted


def remove_run_folders(runs: Path, names: Iterable[str]) -> threading.Thread:
    """Remove the folders of these runs, and what an earlier service has not removed to the end."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            (runs / name).rename(runs / f"{GONE}{name}")
    thread = threading.Thread(target=_delete, args=(runs,), name="old runs", daemon=True)
    thread.start()
    return thread


def _delete(runs: Path) -> None:
    for folder in runs.glob(f"{GONE}*"):
        shutil.rmtree(folder, ignore_errors=True)
