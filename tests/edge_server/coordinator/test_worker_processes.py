"""Worker processes: what they import, and how their end is told."""

import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from edge_server.coordinator.worker_processes import ending, spawn_context, worker_context

DEADLINE_S = 120


@pytest.mark.parametrize("context", [worker_context(["json"]), spawn_context()], ids=["forked", "spawned"])
def test_a_worker_does_not_import_the_main_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: object
) -> None:
    main = ModuleType("__main__")
    main.__file__ = str(tmp_path / "main.py")
    Path(main.__file__).write_text("raise SystemExit('imported again')\n")
    monkeypatch.setitem(sys.modules, "__main__", main)
    process = context.Process(target=sys.exit, args=(7,))  # type: ignore[attr-defined]
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == 7
    assert main.__spec__ is None


def die_with_a_lock() -> None:
    """What a killed process does whose library has made a lock."""
    lock = multiprocessing.RLock()
    assert lock.acquire()
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("start", ['worker_context(["json"])', "spawn_context()"])
def test_a_killed_worker_leaves_no_lock(start: str) -> None:
    script = f"""
from edge_server.coordinator.worker_processes import spawn_context, worker_context
from {__name__} import die_with_a_lock
process = {start}.Process(target=die_with_a_lock)
process.start()
process.join()
print(process.exitcode)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert (done.stdout.strip(), done.stderr) == (str(-signal.SIGKILL), "")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (-signal.SIGKILL, "was killed (SIGKILL): the system does so when memory runs out"),
        (-signal.SIGSEGV, "has died of SIGSEGV"),
        (1, "has ended with exit code 1: see its messages"),
        (None, "has ended"),
    ],
)
def test_memory_is_blamed_only_where_it_may_be_the_cause(code: int | None, words: str) -> None:
    assert ending(code) == words
