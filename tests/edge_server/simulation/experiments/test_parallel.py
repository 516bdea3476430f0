"""Runs in processes of their own: the same results, one stop for all, one failed run if a process dies."""

import os
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from edge_server.simulation.experiments.cells import Plan, RunSelection
from edge_server.simulation.experiments.compare import checked_plan, named_experiment
from edge_server.simulation.experiments.parallel import DIED
from edge_server.simulation.experiments.runner import EndedRuns, run_all
from edge_server.simulation.simulator import simulate
from tests.edge_server.simulation.experiments.made_up import Dies, Quiet, Simulated, Waits

DEADLINE_S = 120


def plan(*overrides: str) -> Plan:
    words = ("data.source=digits", "model.name=mlp", "num-clients=2", "rounds=2", *overrides)
    experiment = named_experiment(["fedavg", "fedprox"])
    return checked_plan(experiment, RunSelection(seeds=(1, 2), overrides=words))


def folders(ended: EndedRuns) -> list[str]:
    return [done.run.folder for done in ended.done]


def test_the_models_are_those_of_one_run_after_the_other(tmp_path: Path) -> None:
    real = partial(simulate, export=False)
    ended = {
        count: run_all(
            plan("workers=1"), tmp_path / str(count), simulate=real, progress=Quiet(), parallel=count
        )
        for count in (1, 2)
    }
    assert folders(ended[2]) == folders(ended[1])
    for folder in folders(ended[1]):
        one, two = (tmp_path / str(count) / "runs" / folder / "models" for count in (1, 2))
        assert (one / "round-0002/state.safetensors").read_bytes() == (
            two / "round-0002/state.safetensors"
        ).read_bytes()


def test_ended_runs_are_reported_and_kept_by_the_next_call(tmp_path: Path) -> None:
    first, second = Quiet(), Quiet()
    ended = run_all(plan(), tmp_path, simulate=Simulated(), progress=first, parallel=2)
    assert folders(ended) == [run.folder for run in plan().runs]
    assert not ended.interrupted
    assert len(first.results) == 4
    run_all(plan(), tmp_path, simulate=Dies("none"), progress=second, parallel=2)
    assert all(result.endswith("finished earlier") for result in second.results)


def test_a_process_that_dies_fails_its_run_alone(tmp_path: Path) -> None:
    dies = Dies("fedavg-result-seed1")
    ended = run_all(plan(), tmp_path, simulate=dies, progress=Quiet(), parallel=2)
    assert {done.run.folder: done.failure for done in ended.done if done.failure} == {dies.in_: DIED}
    assert len(ended.done) == 4


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
