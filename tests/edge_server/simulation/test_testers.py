"""Models tested in processes beside the next round: the history is that of tests between rounds."""

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_server.coordinator.round_recorder import RoundRecorder
from edge_server.coordinator.round_tests import RoundTest, RoundTests, usual_count
from tests.edge_server.simulation.small import StopAfter, history, last_model, run
from tests.edge_server.simulation.test_rolling_back import WORDS as UNDONE
from tests.edge_server.simulation.test_rolling_back import assert_rolled_back, poisoned
from tests.slow import mark_slow, slow

__all__ = ["poisoned"]

TIERS = ("num-clients=3", "rounds=3", "test-samples=60", "workers=2")
BESIDE = (*TIERS, "testers=2")


class Killed(BaseException):
    """The end of the process, which nothing catches."""


@pytest.fixture(scope="module")
def between(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose models are tested between rounds."""
    out = tmp_path_factory.mktemp("between") / "run"
    assert run(out, "attending", *TIERS).outcome == "finished"
    return out


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[RoundTests]]:
    """The tests of the runs of this test, whose processes end with it."""
    made: list[RoundTests] = []

    def keeping(make: Callable[..., None]) -> Callable[..., None]:
        def init(tests: RoundTests, *rest: Any, **more: Any) -> None:
            make(tests, *rest, **more)
            made.append(tests)

        return init

    monkeypatch.setattr(RoundTests, "__init__", keeping(RoundTests.__init__))
    yield made
    for tests in made:
        tests.close()


def assert_same(out: Path, other: Path) -> None:
    assert (out / "history.jsonl").read_bytes() == (other / "history.jsonl").read_bytes()
    assert last_model(out) == last_model(other)


def test_a_test_beside_the_next_round_leaves_the_same_history(
    between: Path, tmp_path: Path, begun: list[RoundTests]
) -> None:
    summary = run(tmp_path / "run", "attending", *BESIDE)
    assert_same(tmp_path / "run", between)
    assert summary.test_accuracy == history(between)[-1]["test_accuracy"]
    assert not begun[0].pids


def test_a_lost_process_costs_time_and_no_figure(
    between: Path,
    tmp_path: Path,
    begun: list[RoundTests],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begin = RoundTests.begin

    def killing(tests: RoundTests, number: int) -> RoundTest:
        test = begin(tests, number)
        if number == 2:
            for pid in tests.pids:
                os.kill(pid, signal.SIGKILL)
        return test

    monkeypatch.setattr(RoundTests, "begin", killing)
    with caplog.at_level(logging.WARNING):
        run(tmp_path / "run", "attending", *BESIDE)
    assert_same(tmp_path / "run", between)
    assert caplog.text.count("the server itself tests from now on") <= 1


@mark_slow
def test_a_run_that_is_killed_before_its_test_has_ended_tests_that_model_again(
    between: Path, tmp_path: Path, begun: list[RoundTests], monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RoundRecorder.record_round

    def recording(recorder: RoundRecorder) -> None:
        if len(history(tmp_path / "run")) == 1 and recorder.is_open:
            raise Killed
        record(recorder)

    with monkeypatch.context() as patched:
        patched.setattr(RoundRecorder, "record_round", recording)
        # Only the close of a round records the one before, whose checkpoint is there by then.
        patched.setattr(RoundRecorder, "is_due", property(lambda recorder: False))
        with pytest.raises(Killed):
            run(tmp_path / "run", "attending", *BESIDE)
    assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["round"] == 2
    assert len(history(tmp_path / "run")) == 1
    assert run(tmp_path / "run", "attending", *TIERS, "testers=1", resume=True).outcome == "finished"
    assert_same(tmp_path / "run", between)


def test_an_interrupted_run_has_the_test_of_its_last_round(
    between: Path, tmp_path: Path, begun: list[RoundTests]
) -> None:
    assert run(tmp_path / "run", "attending", *BESIDE, watcher=StopAfter(1)).outcome == "interrupted"
    lines = history(tmp_path / "run")
    assert lines == history(between)[: len(lines)]
    assert run(tmp_path / "run", "attending", *BESIDE, resume=True).outcome == "finished"
    assert_same(tmp_path / "run", between)


@pytest.mark.parametrize("poisoned", [1e6, slow(1e30)], indirect=True)
def test_a_model_without_finite_numbers_is_undone_before_the_next_round(
    tmp_path: Path, poisoned: None, begun: list[RoundTests]
) -> None:
    words = (*UNDONE, "learning-rate=0.1")
    assert_rolled_back(tmp_path / "beside", run(tmp_path / "beside", "fedavg", *words, "testers=1"))
    run(tmp_path / "between", "fedavg", *words)
    assert_same(tmp_path / "beside", tmp_path / "between")


@pytest.mark.parametrize(
    ("cores", "busy", "expected"),
    [(1, 0, 0), (2, 0, 1), (2, 2, 0), (2, 1, 1), (16, 0, 4), (16, 8, 2), (16, 16, 0)],
)
def test_tests_run_beside_the_next_round_where_there_are_cores_for_them(
    cores: int, busy: int, expected: int
) -> None:
    assert usual_count(cores, busy=busy) == expected
