"""An unexpected end of a process is known at its next start."""

import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.system.crash_record import FOLDER, LAST, RUNNING, collect_crash, last_crash

BEGIN = """
import os, sys, threading
from pathlib import Path
from edge_client.system.crash_record import record_crashes
record_crashes(Path(sys.argv[1]))
"""
ENDS = {
    "exception": "raise ValueError('from main')",
    "signal": "import ctypes; ctypes.string_at(0)",
    "killed": "os.kill(os.getpid(), 9)",
}
SAID = {"exception": "ValueError: from main", "signal": "Segmentation fault", "killed": "without a trace"}


AGAIN = BEGIN + "sys.exit(0)"


def end_as(code: str, state: Path, *words: str) -> None:
    command = [sys.executable, "-c", BEGIN + code, str(state), *words]
    subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize("cause", ENDS)
def test_an_unexpected_end_is_known_afterwards(cause: str, tmp_path: Path) -> None:
    end_as(ENDS[cause], tmp_path)
    found = collect_crash(tmp_path / FOLDER)
    assert found is not None
    assert found["cause"] == cause
    assert SAID[cause] in found["text"]
    assert last_crash(tmp_path) == found
    assert collect_crash(tmp_path / FOLDER) is None
    assert last_crash(tmp_path) == found


def test_a_regular_end_is_no_crash(tmp_path: Path) -> None:
    end_as("sys.exit(3)", tmp_path)
    assert collect_crash(tmp_path / FOLDER) is None
    assert not (tmp_path / FOLDER / RUNNING).exists()


def test_an_exception_of_a_thread_is_recorded_while_the_process_goes_on(tmp_path: Path) -> None:
    code = "thread = threading.Thread(target=lambda: 1 / 0, name='worker'); thread.start(); thread.join()"
    end_as(code, tmp_path)
    found = last_crash(tmp_path)
    assert found is not None
    assert (found["cause"], found["thread"]) == ("exception", "worker")
    # The process has gone on and ended regularly.
    assert collect_crash(tmp_path / FOLDER) is None
    assert last_crash(tmp_path) == found


def test_a_process_that_replaces_its_program_has_not_ended(tmp_path: Path) -> None:
    end_as("os.execv(sys.executable, [sys.executable, '-c', sys.argv[2], sys.argv[1]])", tmp_path, AGAIN)
    assert last_crash(tmp_path) is None


def test_a_damaged_record_is_none(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / LAST).write_text('{"cause": "exception"')
    assert last_crash(tmp_path) is None
