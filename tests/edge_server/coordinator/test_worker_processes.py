"""Worker processes: what they import, and how their end is told."""

import signal
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
