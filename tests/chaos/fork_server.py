"""Starts processes quickly: they are forked from a process that has already imported torch.

Each device has its own process, memory and state folder. The import takes seconds; over five hundred restarts
it would add an hour.

As a program it reads one JSON line per process, `{"program": NAME, "argv": [...], "log": PATH}`, and prints
the process id. Servers have process ids of their own, if this is allowed, so that they take each other for
servers on other machines.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1
CLONE_NEWPID = 0x20000000


class ForkServer:
    """The process from which devices, and `servers`, are forked; it ends them with itself."""

    def __init__(self, *, servers: bool = False) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fork_server", *(["servers"] if servers else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def device(self, argv: list[str], log: Path) -> int:
        """Start `edge-client ARGV` and return its process id."""
        return self._start("edge-client", argv, log)

    def server(self, argv: list[str], log: Path) -> int:
        """Start `edge-server ARGV` and return its process id."""
        return self._start("edge-server", argv, log)

    def _start(self, program: str, argv: list[str], log: Path) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"program": program, "argv": argv, "log": str(log)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the remaining devices and this process."""
        self._process.kill()
        self._process.communicate()


def _main() -> None:
    # Every device imports these; forked processes share them.
    import edge_client.agent.agent
    import edge_client.agent.task_runner
    import edge_client.cli.commands.run
    import edge_client.training.torch_trainer  # noqa: F401

    if "servers" in sys.argv:
        from edge_server.coordinator.standby import preload

        preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        request = json.loads(line)
        if request["program"] == "edge-server":
            # Its children have process ids of their own.
            ctypes.CDLL(None).unshare(CLONE_NEWPID)
        pid = os.fork()
        if pid == 0:
            _run(request)
        if request["program"] == "edge-server":
            _share_again()
        print(pid, flush=True)


def _share_again() -> None:
    """Let the next child have process ids of this process's own namespace."""
    descriptor = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        ctypes.CDLL(None).setns(descriptor, CLONE_NEWPID)
    finally:
        os.close(descriptor)


def _run(request: dict[str, Any]) -> None:
    from edge_client.cli.main import main as run_device
    from edge_server.cli.main import main as run_server

    main = run_server if request["program"] == "edge-server" else run_device
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(request["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    sys.stdout = sys.stderr = os.fdopen(log, "w", buffering=1)
    os._exit(main(request["argv"]))


if __name__ == "__main__":
    _main()
