"""What ended this process unexpectedly, in files of the state folder that its next start reads.

`crash.json` is an exception that nothing caught, `fault.txt` the stacks that faulthandler writes when a
signal such as SIGSEGV ends the process, and `running` is removed at a regular end: if it is left, the
process was killed, or lost its power.
"""

import atexit
import contextlib
import faulthandler
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TextIO, TypedDict

from edge_client.storage.atomic_files import write_synced
from edge_client.system.logging.formatters import stack_of

FOLDER, EXCEPTION, FAULT, RUNNING, LAST = "crash", "crash.json", "fault.txt", "running", "last.json"
LONGEST_TEXT = 32_768
MAIN = "main"
_open: list[TextIO] = []  # the file of faulthandler, which must stay open


class Crash(TypedDict):
    """An unexpected end, at `at` seconds since 1970 as far as known; `text` are the stacks."""

    cause: Literal["exception", "signal", "killed"]
    at: float
    thread: str
    text: str


def record_crashes(state: Path) -> Crash | None:
    """Record unexpected ends of this process; returns that of the process before, if it was one."""
    folder = state / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        ended = collect_crash(folder)
        _begin(folder)
    except OSError:
        return None
    return ended


def last_crash(state: Path) -> Crash | None:
    """The last unexpected end of a process of this device, or of a thread of this process."""
    found = [_read(state / FOLDER / name) for name in (LAST, EXCEPTION)]
    return max((crash for crash in found if crash), key=lambda crash: crash["at"], default=None)


def collect_crash(folder: Path) -> Crash | None:
    """Move what the process before has left to `last.json`."""
    killed = _find_kill(folder)
    found = _read(folder / EXCEPTION) or _fault(folder) or killed
    if found is not None:
        write_synced(folder / LAST, json.dumps(found).encode())
    for name in (EXCEPTION, FAULT, RUNNING):
        (folder / name).unlink(missing_ok=True)
    # A process may go on after an exception in one of its threads.
    ended = killed is not None or (found is not None and found["thread"] in ("", MAIN))
    return found if ended else None


def _fault(folder: Path) -> Crash | None:
    path = folder / FAULT
    with contextlib.suppress(OSError):
        text = path.read_text(errors="replace")[:LONGEST_TEXT]
        if text.strip():
            return Crash(cause="signal", at=path.stat().st_mtime, thread="", text=text)
    return None


def _find_kill(folder: Path) -> Crash | None:
    path = folder / RUNNING
    with contextlib.suppress(OSError, ValueError):
        begun = path.stat().st_mtime
        if path.read_text() == str(os.getpid()):
            return None  # this process has replaced its program
        text = "the process ended without a trace: it was killed, or the board lost its power"
        return Crash(cause="killed", at=begun, thread="", text=f"{text}, after it had begun at this time")
    return None


def _begin(folder: Path) -> None:
    file = (folder / FAULT).open("w")
    _open[:] = [file]
    faulthandler.enable(file=file)
    running = folder / RUNNING
    running.write_text(str(os.getpid()))
    atexit.register(running.unlink, missing_ok=True)
    sys.excepthook = _hook(folder, sys.excepthook)
    earlier = threading.excepthook

    def in_thread(args: threading.ExceptHookArgs) -> None:
        name = args.thread.name if args.thread is not None else ""
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            _write(folder, args.exc_value, name)
        earlier(args)

    threading.excepthook = in_thread


Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def _hook(folder: Path, earlier: Hook) -> Hook:
    def record(kind: type[BaseException], error: BaseException, stack: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):
            _write(folder, error, MAIN)
        earlier(kind, error, stack)

    return record


def _write(folder: Path, error: BaseException, thread: str) -> None:
    text = stack_of(error)
    # The end of a stack names the error and is worth more than its beginning.
    crash = Crash(cause="exception", at=time.time(), thread=thread, text=text[-LONGEST_TEXT:])
    with contextlib.suppress(OSError):
        write_synced(folder / EXCEPTION, json.dumps(crash).encode())


def _read(path: Path) -> Crash | None:
    try:
        value = json.loads(path.read_bytes())
        at, thread, text = float(value["at"]), str(value["thread"]), str(value["text"])
        return Crash(cause=value["cause"], at=at, thread=thread, text=text)
    except (OSError, ValueError, TypeError, KeyError):
        return None
