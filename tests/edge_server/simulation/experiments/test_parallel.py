"""Runs in processes of their own: the same results, one stop for all, one failed run if a process dies."""

import io
import os
import signal
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from edge_server.simulation.experiments.progress import Lines
from edge_server.simulation.experiments.runner import EndedRuns, run_all
from edge_server.simulation.simulator import simulate
from edge_server.storage.run_files import read_run_files
from tests.edge_server.simulation.experiments.made_up import (
    Dies,
    Quiet,
    Raises,
    Simulated,
    StopsTheParent,
    Stuck,
    Waits,
    plan,
    trains,
)
from tests.forked import forked_python
from tests.forked.workers import forked
from tests.slow import mark_slow

__all__ = ["forked"]

DEADLINE_S = 120


def folders(ended: EndedRuns) -> list[str]:
    return [done.run.folder for done in ended.done]


@mark_slow
@pytest.mark.usefixtures("forked")
def test_the_models_are_those_of_one_run_after_the_other(tmp_path: Path) -> None:
    ended = {
        count: run_all(
            plan("workers=1", seeds=(1,)),
            tmp_path / str(count),
            simulate=trains,
            progress=Quiet(),
            parallel=count,
        )
        for count in (1, 2)
    }
    assert folders(ended[2]) == folders(ended[1])
    for folder in folders(ended[1]):
        one, two = (tmp_path / str(count) / "runs" / folder for count in (1, 2))
        for name in ("history.jsonl", "models/round-0002/state.safetensors"):
            assert (one / name).read_bytes() == (two / name).read_bytes()


@pytest.mark.usefixtures("forked")
def test_ended_runs_are_reported_and_kept_by_the_next_call(tmp_path: Path) -> None:
    first, second = Quiet(), Quiet()
    ended = run_all(plan(), tmp_path, simulate=Simulated(), progress=first, parallel=2)
    assert folders(ended) == [run.folder for run in plan().runs]
    assert not ended.interrupted
    assert len(first.results) == 4
    assert max(first.busy) == 2
    assert first.busy[-1] == 0
    run_all(plan(), tmp_path, simulate=Dies("none"), progress=second, parallel=2)
    assert all(result.endswith("finished earlier") for result in second.results)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (Dies("fedavg-result-seed1"), "its process has ended with exit code 9: see its messages"),
        (Raises("fedavg-result-seed1"), "ZeroDivisionError: a user's own network"),
    ],
)
def test_a_process_that_dies_or_raises_fails_its_run_alone(
    broken: Dies | Raises, reason: str, tmp_path: Path
) -> None:
    ended = run_all(plan(), tmp_path, simulate=broken, progress=Quiet(), parallel=2)
    assert {done.run.folder: done.failure for done in ended.done if done.failure} == {broken.in_: reason}
    assert len(ended.done) == 4


@mark_slow
def test_stopped_runs_go_on_to_the_same_history(tmp_path: Path) -> None:
    whole, stopped, real = tmp_path / "whole", tmp_path / "stopped", partial(simulate, export=False)
    made = plan("rounds=3", "workers=1", seeds=(1,))
    run_all(made, whole, simulate=real, progress=Quiet())
    first = run_all(made, stopped, simulate=StopsTheParent(tmp_path / "sent"), progress=Quiet(), parallel=2)
    assert first.interrupted
    assert first.done == ()
    begun = [path.parent for path in stopped.glob("runs/*/summary.json")]
    assert {read_run_files(path).summary.outcome for path in begun} == {"interrupted"}
    again = run_all(made, stopped, simulate=real, progress=Quiet(), parallel=2)
    assert not again.interrupted
    for folder in folders(again):
        histories = [out / "runs" / folder / "history.jsonl" for out in (whole, stopped)]
        assert histories[0].read_bytes() == histories[1].read_bytes()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_to_the_parent_stops_all_runs(tmp_path: Path, number: signal.Signals) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    over = threading.Event()

    def stop_once_both_run() -> None:
        while not over.wait(0.02):
            if len(list(begun.iterdir())) == 2:
                os.kill(os.getpid(), number)
                return

    watching = threading.Thread(target=stop_once_both_run)
    watching.start()
    try:
        ended = run_all(plan(), tmp_path / "out", simulate=Waits(begun), progress=Quiet(), parallel=2)
    finally:
        over.set()
        watching.join(DEADLINE_S)
    assert ended.interrupted
    assert ended.done == ()
    # The other two runs have not begun, and the same command runs all four.
    assert len(list(begun.iterdir())) == 2
    again = run_all(plan(), tmp_path / "out", simulate=Simulated(), progress=Quiet(), parallel=2)
    assert len(again.done) == 4


@pytest.mark.usefixtures("forked")
def test_a_second_ctrl_c_ends_processes_that_do_not_stop(tmp_path: Path) -> None:
    over, before = threading.Event(), signal.signal(signal.SIGINT, signal.default_int_handler)

    def press_twice() -> None:
        while len(list(tmp_path.glob("*seed*"))) < 2 and not over.wait(0.02):
            pass
        os.kill(os.getpid(), signal.SIGINT)
        # The handler of the first gives way to the one before.
        while signal.getsignal(signal.SIGINT) is not signal.default_int_handler and not over.wait(0.02):
            pass
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press_twice)
    pressing.start()
    try:
        ended = run_all(plan(), tmp_path / "out", simulate=Stuck(tmp_path), progress=Quiet(), parallel=2)
    finally:
        over.set()
        pressing.join(DEADLINE_S)
        signal.signal(signal.SIGINT, before)
    assert ended.interrupted
    assert ended.done == ()


GROUP = """
import os, pathlib, signal, sys
from edge_server.coordinator.worker_processes import worker_context
from edge_server.simulation.experiments import runner
from tests.edge_server.simulation.experiments.made_up import Waits, plan
from tests.forked.workers import PRELOADED

# Needed if the tests run in the background of a shell, which ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
out = pathlib.Path(sys.argv[1])

def at_work(busy, share):
    if busy and sys.argv[2] == "stop":
        sys.argv[2] = ""
        os.killpg(0, signal.SIGINT)

runner.spawn_context = lambda: worker_context(PRELOADED)
ended = list(runner.run_in_processes(plan().runs, out / "out", Waits(out), 2, at_work=at_work))
print(len(ended))
"""


def start(out: Path, what: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [*forked_python(), "-c", GROUP, str(out), what],
        cwd=Path(__file__).parents[4],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_ctrl_c_while_processes_start_ends_them_without_a_word(tmp_path: Path) -> None:
    said = start(tmp_path, "stop").communicate(timeout=DEADLINE_S)
    # A process may start quickly enough to begin its run, which then ends as interrupted.
    begun = len(list(tmp_path.glob("*seed*")))
    assert said == (f"{begun}\n", "")
    assert (tmp_path / "out/runs").exists() == (begun > 0)


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    parent, tick = start(tmp_path, ""), threading.Event()
    try:
        deadline = time.monotonic() + DEADLINE_S
        while len(list(tmp_path.glob("*seed*"))) < 2 and time.monotonic() < deadline:
            tick.wait(0.02)
    finally:
        parent.kill()
    # The pipe is open for as long as a process lives that has inherited it.
    parent.communicate(timeout=DEADLINE_S)
    assert len(list(tmp_path.glob("*seed*"))) == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_many_runs_are_at_work() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        Lines(stream).at_work(2, ended=3, count=24, left_s=90.0)
        Lines(stream).at_work(0, ended=24, count=24, left_s=0.0)
    assert terminal.getvalue() == "\r\x1b[K2 runs at work, 3 of 24 ended, about 1 min 30 s left\r\x1b[K"
    assert file.getvalue() == ""
