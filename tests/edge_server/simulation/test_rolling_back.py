"""A simulated run rolls back to the last good model, even after it was resumed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import edge_server.coordinator.aggregator
import edge_server.coordinator.round_recorder
from edge_server.storage.records import Summary
from edge_server.strategy.closing import close_round
from edge_server.strategy.strategy import State
from tests.edge_server.simulation.small import StopAfter, history, last_model, run
from tests.slow import mark_slow

WORDS = ("num-clients=3", "rounds=4", "test-samples=20", "simulation.clock=[]")
LIAR = "device-0001"


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Make round two produce a model that devices cannot train and the server cannot test."""
    factor = getattr(request, "param", 1e30)

    def closed(strategy: Any, state: State, updates: Any, *rest: Any, **more: Any) -> State:
        after = close_round(strategy, state, updates, *rest, **more)
        if state.round != 1 or all(update.client != LIAR for update in updates):
            return after
        return replace(after, params={name: array * factor for name, array in after.params.items()})

    def measured(_reader: Any, _number: int, *_: Any) -> dict[str, dict[str, float]]:
        return {f"device-{n:04d}": {"model": 1e6 if f"device-{n:04d}" == LIAR else 1.0} for n in (1, 2, 3)}

    monkeypatch.setattr(edge_server.coordinator.aggregator, "close_round", closed)
    monkeypatch.setattr(edge_server.coordinator.round_recorder, "measure_updates", measured)


def assert_rolled_back(out: Path, summary: Summary) -> None:
    assert summary.outcome == "finished"
    (undone,) = summary.undone
    assert (undone.round, undone.back_to, undone.left_out) == (2, 1, (LIAR,))
    lines = history(out)
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert [line["back_to"] for line in lines] == [None, None, 1, None]
    assert all(LIAR not in line["selected"] for line in lines[2:])


@pytest.mark.parametrize("poisoned", [1e6, 1e30], indirect=True)
def test_the_run_continues_from_the_previous_model_without_the_liar(tmp_path: Path, poisoned: None) -> None:
    words = (*WORDS, "learning-rate=0.1")
    assert_rolled_back(tmp_path / "whole", run(tmp_path / "whole", "fedavg", *words))


@mark_slow
def test_a_resumed_run_ends_like_an_uninterrupted_one(tmp_path: Path, poisoned: None) -> None:
    words = (*WORDS, "learning-rate=0.1")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(whole, "fedavg", *words)
    run(stopped, "fedavg", *words, watcher=StopAfter(2))
    (stopped / "summary.json").unlink(missing_ok=True)
    assert_rolled_back(stopped, run(stopped, "fedavg", *words, resume=True))
    assert last_model(stopped) == last_model(whole)
