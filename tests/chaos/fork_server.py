"""Starts device processes quickly: they are forked from a process that has already imported torch.

Each device has its own process, memory and state folder. The import takes seconds; over five hundred restarts
it would add an hour.

As a program it reads one JSON line per device, `{"argv": [...], "log": PATH}`, and prints the process id.
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


class ForkServer:
    """The process from which devices are forked; it ends them with itself."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def device(self, argv: list[str], log: Path) -> int:
        """Start `edge-client ARGV` and return its process id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": argv, "log": str(log)}) + "\n")
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
    import edge_client.cli.commands.run  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    fork_server = os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _run_device(json.loads(line), fork_server)
        print(pid, flush=True)


def _run_device(request: dict[str, Any], fork_server: int) -> None:
    from edge_client.cli.main import main

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != fork_server:
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(request["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    sys.stdout = sys.stderr = os.fdopen(log, "w", buffering=1)
    os._exit(main(request["argv"]))


if __name__ == "__main__":
    _main()
