"""Whether the process that holds a lease still runs on this machine."""

import subprocess
import sys
from pathlib import Path

from edge_server.transport.lease.holder import in_words, runs_here, this_process


def test_this_process_runs(tmp_path: Path) -> None:
    me = this_process(tmp_path / "run")
    assert runs_here(me) is True
    assert f"process {me.pid}, run folder {tmp_path}/run, since 20" in in_words(me)


def test_a_process_that_has_ended_does_not(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    gone = this_process(tmp_path).model_copy(update={"pid": process.pid})
    process.wait()
    assert runs_here(gone) is False


def test_a_process_id_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    me = this_process(tmp_path)
    assert runs_here(me.model_copy(update={"ticks": me.ticks + 1})) is False


def test_nothing_is_known_of_processes_elsewhere(tmp_path: Path) -> None:
    me = this_process(tmp_path)
    assert runs_here(me.model_copy(update={"machine": "another boot"})) is None
    assert runs_here(me.model_copy(update={"machine": ""})) is None
