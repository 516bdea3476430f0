"""The processes of running jobs, those of an earlier service included.

A process is found by the lock on the run's folder, not by its number, which another process may have by now.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_server.fleet.queue import supervisor
from edge_server.fleet.queue.machine import INTERRUPTED, SUSPENDED
from edge_server.fleet.queue.supervisor import LOCK, LOG, OUTCOME, started_at


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
        if _is_locked(self._runs / run / LOCK):
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


def _is_locked(path: Path) -> bool:
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


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
