"""What a forked process does: it becomes the program that was asked for."""

import atexit
import contextlib
import ctypes
import fcntl
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import NoReturn

from tests.forked.interpreter import run_python
from tests.forked.request import Request
from tests.unsynced import sync_nothing

PR_SET_PDEATHSIG = 1
UNSYNCED = "EDGE_TESTS_UNSYNCED"
"""Environment variable of processes that sync no files (`tests/conftest.py`)."""
FREE = 128
"""Descriptors from this number on are in nobody's way."""


def become(request: Request, descriptors: Mapping[int, int]) -> NoReturn:
    """Run the program in this process, which then exits."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, request.blocked)
    _place(descriptors)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(request.environ)
    os.chdir(request.cwd)
    if UNSYNCED in os.environ:
        sync_nothing()
    code = _ended_with(_main_of(request))
    # An interpreter does this as it ends. It also calls destructors of C++, which abort in a forked process
    # since they wait for threads that only the first process has.
    threading._shutdown()
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            output.flush()
    os._exit(code)


def _place(descriptors: Mapping[int, int]) -> None:
    """Give each descriptor its number; the standard ones are inherited by programs that this one starts."""
    moved = {number: fcntl.fcntl(old, fcntl.F_DUPFD_CLOEXEC, FREE) for number, old in descriptors.items()}
    for old in descriptors.values():
        os.close(old)
    for number, new in moved.items():
        os.dup2(new, number, inheritable=number <= 2)
        os.close(new)


def _main_of(request: Request) -> Callable[[], int]:
    sys.argv = [request.program, *request.words]
    from edge_client.cli.main import main as run_client
    from edge_server.cli.main import main as run_server
    from tests.forked.fork_servers import fork_fork_servers

    if not request.own_pids:
        # A fork server would have process ids of another namespace.
        fork_fork_servers()
    if request.program == "python":
        # Ctrl-C reaches it once, through the process that waits for it.
        os.setpgid(0, 0)
        return lambda: run_python(request.words)
    main = {"edge-server": run_server, "edge-client": run_client}[request.program]
    return lambda: main(list(request.words))


def _ended_with(main: Callable[[], int]) -> int:
    """The exit code of a program."""
    try:
        return main()
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
            return 1
        return ending.code or 0
    except BaseException:
        traceback.print_exc()
        return 1
