"""Commands of `edge-server` and `edge-client` that start quickly: forked from a process with torch imported.

Each command is a process of its own, with its own arguments, environment, folder and output, and ends as
`python -m` would. Only its start is quicker, by two seconds of processor time.
"""

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.exporter import look_up_operators_once

ROOT = Path(__file__).parents[1]
MOST_BYTES = 1 << 18
"""A request has all environment variables."""
PR_SET_PDEATHSIG = 1


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


def start_forked(program: str, *words: object, log: Path | None = None) -> ForkedCommand:
    """Start `edge-server` or `edge-client`; its output is appended to `log`, else in `stdout`."""
    if log is None:
        output, written = os.pipe()
    else:
        output, written = None, os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    ending, ended = os.pipe()
    try:
        pid = _starter().start(program, [str(word) for word in words], written, ended)
    finally:
        os.close(written)
        os.close(ended)
    return ForkedCommand(pid, ending, output)


@cache
def _starter() -> "_Starter":
    return _Starter()


class _Starter:
    """The process from which commands are forked; they end with it, and it with this process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        atexit.register(self.close)

    def start(self, program: str, words: list[str], *descriptors: int) -> int:
        request = {"program": program, "words": words, "cwd": str(Path.cwd()), "environ": dict(os.environ)}
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            return int(self._socket.recv(32))

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


def _main(connection: socket.socket) -> None:
    """Fork a command for each request, and tell its exit code when it has ended."""
    _import_all()
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([connection, *running], [], [])[0]:
            if ready is not connection:
                _report(*running.pop(ready), ready)
                continue
            request, descriptors, _, _ = socket.recv_fds(connection, MOST_BYTES, 2)
            if not request:
                return
            written, ended = descriptors
            pid = os.fork()
            if pid == 0:
                connection.close()
                for handle, (_, others) in running.items():
                    os.close(handle)
                    os.close(others)
                os.close(ended)
                _become(json.loads(request), written)
            os.close(written)
            running[os.pidfd_open(pid)] = (pid, ended)
            connection.send(str(pid).encode())


def _import_all() -> None:
    import edge_server.cli.main  # noqa: F401
    from edge_server.coordinator.standby import preload

    preload()
    look_up_operators_once()
    # As in this process (`tests/conftest.py`): no test cuts the power of this machine.
    os.fsync = lambda descriptor: None
    gc.collect()
    gc.freeze()


def _report(pid: int, ended: int, handle: int) -> None:
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        os.write(ended, str(code).encode())
    os.close(ended)
    os.close(handle)


def _become(request: dict[str, Any], written: int) -> NoReturn:
    """Run the command in this process, which then exits."""
    from edge_client.cli.main import main as run_client
    from edge_server.cli.main import main as run_server

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.close(written)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.argv = [request["program"], *request["words"]]
    main = {"edge-server": run_server, "edge-client": run_client}[request["program"]]
    try:
        code = main(request["words"])
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
        code = 1
    # An interpreter does this as it ends. It also calls destructors of C++, which abort in a forked process
    # since they wait for threads that only the first process has.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])))
