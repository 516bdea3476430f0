"""Commands of `edge-server`, `edge-client` and `python` that start quickly.

Each command is a process of its own, with its own arguments, environment, folder and output, and ends as
`python -m` would. Only its start is quicker, by two seconds of processor time. Commands end with the process
that has started them.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO

from tests.forked.connection import connection
from tests.forked.request import Request


class ForkedCommand:
    """A command that runs, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, ending: int, output: int | None) -> None:
        self.pid, self._ending = pid, ending
        self.returncode: int | None = None
        self.stdout: IO[str] | None = None if output is None else os.fdopen(output, "r")

    def poll(self) -> int | None:
        """The exit code if the command has ended; minus the signal if one has ended it."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the exit code; raises `subprocess.TimeoutExpired`."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """The rest of the output, once the command has ended."""
        found: list[str] = []
        reader = threading.Thread(target=lambda: found.append(self._rest()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        self.wait(timeout)
        return found[0], None

    def send_signal(self, number: int) -> None:
        """Send a signal if the command still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _rest(self) -> str:
        return "" if self.stdout is None or self.stdout.closed else self.stdout.read()

    def _ended_within(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ending], [], [], timeout)[0]:
            self.returncode = int(os.read(self._ending, 16) or b"-9")
            os.close(self._ending)
        return self.returncode


def start_forked(
    program: str, *words: object, log: Path | None = None, own_pids: bool = False
) -> ForkedCommand:
    """Start `edge-server`, `edge-client` or `python`; its output is appended to `log`, else in `stdout`.

    A command with `own_pids` has process ids of its own, if this is allowed, so that two such commands take
    each other for processes on different machines.
    """
    if log is None:
        output, written = os.pipe()
    else:
        output, written = None, os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    ending, ended = os.pipe()
    request = Request.of_this_process(program, map(str, words), own_pids=own_pids)
    try:
        pid = connection().start(request, {1: written, 2: written}, ended)
    finally:
        os.close(written)
        os.close(ended)
    return ForkedCommand(pid, ending, output)
