"""This process's connection to the one from which others are forked.

All pytest processes share that one. A program without pytest, and pytest without xdist, starts its own with
the first process that it needs.
"""

import atexit
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.forked.request import Request

ROOT = Path(__file__).parents[2]
ADDRESS = "EDGE_TESTS_FORKED_FROM"
"""Environment variable with the socket of a process from which others are forked."""


class Connection:
    """A connection: processes that were started through it are killed when it closes."""

    def __init__(self, address: str) -> None:
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(address)

    def start(self, request: Request, descriptors: Mapping[int, int], ended: int) -> int:
        """Start a process and return its id; its exit code is written to `ended`.

        `descriptors` has the numbers that descriptors of this process have in the new one.
        """
        with self._lock:
            socket.send_fds(self._socket, [request.to_bytes(descriptors)], [ended, *descriptors.values()])
            return int(self._socket.recv(32))


@cache
def connection() -> Connection:
    """This process's connection; starts the other process if there is none."""
    return Connection(start_server())


def forked_python() -> list[str]:
    """The words that start a Python process, as `sys.executable` does, with all imports done.

    After SIGKILL the process may run for a moment longer than the one that these words start: a test that
    sends this signal uses `start_forked`.
    """
    start_server()
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("python.py"))]


def forked_executable(folder: Path) -> str:
    """A program in this folder that takes the words of `sys.executable` and starts with all imports done."""
    program = folder / "forked-python"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(forked_python())} "$@"\n')
    program.chmod(0o755)
    return str(program)


def start_server(*, tests: bool = False) -> str:
    """Start the process from which others are forked, unless there is one; returns its address.

    It ends when this process ends, and its children end with it.
    """
    if ADDRESS in os.environ:
        return os.environ[ADDRESS]
    folder = tempfile.TemporaryDirectory(prefix="edge-forked-")
    address = f"{folder.name}/socket"
    lifeline, ours = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(128)
        code = f"from tests.forked.server import serve; serve({listener.fileno()}, {lifeline}, {tests=})"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            pass_fds=[listener.fileno(), lifeline],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    os.close(lifeline)
    atexit.register(_end, ours, process, folder)
    os.environ[ADDRESS] = address
    return address


def _end(ours: int, process: subprocess.Popen[bytes], folder: "tempfile.TemporaryDirectory[str]") -> None:
    os.close(ours)
    # Its imports, which take a minute on a busy machine, do not hold up Ctrl-C.
    process.kill()
    process.wait()
    folder.cleanup()
