"""The fork server of `multiprocessing` is forked too, instead of importing torch once more."""

import os
import select
import threading
from collections.abc import Sequence
from multiprocessing import forkserver, util
from typing import Any

from tests.forked.connection import connection
from tests.forked.request import Request

_starting = threading.RLock()
_ending: dict[int, int] = {}
"""By process id of a fork server, the pipe that is ready when it has ended."""


def fork_fork_servers() -> None:
    """Let the fork servers that this process starts be forked."""
    server: Any = forkserver.ForkServer
    if server.ensure_running is not _ensure_running:
        forkserver.util = _Util()  # type: ignore[attr-defined]
        server.ensure_running = _ensure_running
        forkserver.ensure_running = forkserver._forkserver.ensure_running  # type: ignore[attr-defined]


def _ensure_running(server: Any, original: Any = forkserver.ForkServer.ensure_running) -> None:
    """As the method of the library, which takes the fork server for a child of this process."""
    with _starting:
        ending = _ending.get(server._forkserver_pid)
        if ending is not None and not select.select([ending], [], [], 0)[0]:
            return
        if ending is not None:
            os.close(_ending.pop(server._forkserver_pid))
            os.close(server._forkserver_alive_fd)
            server._forkserver_pid = None
        original(server)


class _Util:
    """The library's functions, of which one starts a process."""

    def __getattr__(self, name: str) -> Any:
        return getattr(util, name)

    @staticmethod
    def spawnv_passfds(path: str, args: Sequence[str], passfds: Sequence[int]) -> int:
        """Start `path -c CODE`; returns the process id."""
        request = Request.of_this_process("python", args[1:], ends_with_caller=False)
        ending, ended = os.pipe()
        try:
            pid = connection().start(request, {number: number for number in (1, 2, *passfds)}, ended)
        finally:
            os.close(ended)
        _ending[pid] = ending
        return pid
