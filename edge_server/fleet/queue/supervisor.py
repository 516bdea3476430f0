"""Run the command of one attempt of a job; a script of its own that imports nothing but the standard library.

`python supervisor.py PARENT FOLDER ATTEMPT DIRECTORY COMMAND...`

While it runs, it and the command hold a lock on FOLDER/job.lock. It copies the command's output to
FOLDER/job.log, passes SIGTERM and SIGINT on, and leaves the exit code in FOLDER/job.json. When the process
PARENT dies, even of SIGKILL, the command gets SIGTERM: nothing runs on without a service.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

LOCK, LOG, OLD_LOG, OUTCOME = "job.lock", "job.log", "job.log.1", "job.json"
LOG_BYTES = 4 * 1024 * 1024  # Size at which the log becomes the old one, of which there is one
IN_USE, NOT_FOUND = 75, 127
WATCHDOG = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "EDGE_HEARTBEAT")
"""Variables by which systemd and containers watch the service."""
_PR_SET_PDEATHSIG = 1
_BLOCK = 65536


def main(arguments: Sequence[str]) -> int:
    parent, folder, attempt, directory, *command = arguments
    end_with_parent()
    if os.getppid() != int(parent):
        return IN_USE
    os.chdir(folder)
    with contextlib.ExitStack() as held:
        lock = _take_lock(held)
        if lock is None:
            return IN_USE
        log = Log(Path(LOG))
        log.write(
            f"--- attempt {attempt}, {time.strftime('%Y-%m-%d %H:%M:%S')}: {' '.join(command)}\n".encode()
        )
        code, signalled = Supervised(command, directory, lock, log).run()
        write_outcome({"attempt": int(attempt), "code": code, "signalled": signalled, "at": time.time()})
    return 0


def end_with_parent() -> None:
    """Let Linux send SIGTERM to this process when the thread that started it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the command: without the watchdog of the service, and with unbuffered lines."""
    left = {name: value for name, value in environment.items() if name not in WATCHDOG}
    return {**left, "PYTHONUNBUFFERED": "1"}


def _take_lock(held: contextlib.ExitStack) -> int | None:
    """Take the lock and say who has it; None if an earlier attempt still runs."""
    file = Path(LOCK).open("a+")  # noqa: SIM115 - held until the command has ended
    held.callback(file.close)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    file.truncate(0)
    file.write(json.dumps({"pid": os.getpid(), "ticks": started_at(os.getpid())}))
    file.flush()
    return file.fileno()


def started_at(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Log:
    """A log file that is renamed when it has become too large."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("ab")

    def write(self, data: bytes) -> None:
        """Append; a full disk loses output, not the job."""
        with contextlib.suppress(OSError):
            self._file.write(data)
            self._file.flush()
            if self._file.tell() >= LOG_BYTES:
                self._file.close()
                self._path.replace(self._path.with_name(OLD_LOG))
                self._file = self._path.open("ab")


class Supervised:
    """A command whose output is copied and to which signals are passed on."""

    def __init__(self, command: Sequence[str], directory: str, lock: int, log: Log) -> None:
        self._command, self._directory, self._lock, self._log = command, directory, lock, log
        self._process: subprocess.Popen[bytes] | None = None
        self._signalled: str | None = None
        self._passed_on: set[int] = set()

    def run(self) -> tuple[int, str | None]:
        """Run to the end; returns the exit code, negative for a signal, and the last signal passed on."""
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._pass_on)
        try:
            self._process = self._start_process()
        except OSError as error:
            self._log.write(f"{self._command[0]}: {error.strerror}\n".encode())
            return NOT_FOUND, self._signalled
        if self._signalled is not None:
            self._process.send_signal(signal.Signals[f"SIG{self._signalled}"])
        self._copy(woken)
        return self._process.wait(), self._signalled

    def _start_process(self) -> subprocess.Popen[bytes]:
        # No other thread runs here, so that code between fork and exec cannot deadlock.
        return subprocess.Popen(
            self._command,
            cwd=self._directory,
            env=job_environment(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(self._lock,),
            preexec_fn=end_with_parent,
        )

    def _pass_on(self, number: int, frame: object) -> None:
        """Pass a signal on, once: a second one would end the command at once.

        Linux sends the signal of a parent's death again for each thread of the parent.
        """
        if number in self._passed_on:
            return
        self._passed_on.add(number)
        self._signalled = signal.Signals(number).name.removeprefix("SIG")
        if self._process is not None:
            self._process.send_signal(number)

    def _copy(self, woken: socket.socket) -> None:
        """Copy output until the command has ended, even if another process still holds the pipe."""
        assert self._process is not None
        assert self._process.stdout is not None
        sources: list[int] = [woken.fileno(), self._process.stdout.fileno()]
        while self._process.poll() is None:
            ready, _, _ = select.select(sources, [], [])
            if woken.fileno() in ready:
                woken.recv(_BLOCK)
            for output in set(ready) - {woken.fileno()}:
                self._copy_block(output, sources)
        while sources[1:] and select.select(sources[1:], [], [], 0)[0]:
            self._copy_block(sources[1], sources)

    def _copy_block(self, output: int, sources: list[int]) -> None:
        data = os.read(output, _BLOCK)
        self._log.write(data)
        if not data:
            sources.remove(output)


def write_outcome(outcome: dict[str, object]) -> None:
    """Leave the end of the attempt on disk."""
    aside = Path(f".{OUTCOME}.part")
    with aside.open("w") as file:
        file.write(json.dumps(outcome))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(OUTCOME)
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
