"""Device processes that start at once: forked from one that has imported what they need.

Each is a process of its own, with its own memory and state folder, and dies like any other. Only the seconds
that importing torch takes are spared, of which five hundred restarts would make an hour.

Run as a program it reads one JSON line per device, `{"argv": [...], "log": PATH}`, and answers with its pid.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


class Nursery:
    """The process that devices are forked from; they all end with it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"],
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
        """End the devices that are left, and the nursery."""
        self._process.kill()
        self._process.communicate()


def _main() -> None:
    # What a device imports in any case: the command, the agent, and torch with the work.

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    nursery = os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _live(json.loads(line), nursery)
        print(pid, flush=True)


def _live(born: dict[str, Any], nursery: int) -> None:
    from edge_client.cli.main import main

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != nursery:
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(born["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    sys.stdout = sys.stderr = os.fdopen(log, "w", buffering=1)
    os._exit(main(born["argv"]))


if __name__ == "__main__":
    _main()
