"""Graphs of the first delivery are drawn while round one is trained."""

import os
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from edge_client.inference.export import graph_export
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import Coordinator, assemble
from edge_server.coordinator.model_process import Drawn, GraphJob, ModelProcess, ProcessLost
from edge_server.storage.run_folder import RunFolder
from tests.edge_server.simulation.small import run

WORDS = ("data.source=digits", "num-clients=2", "rounds=2", "test-samples=20")


@pytest.fixture
def coordinator(tmp_path: Path) -> Any:
    config = load_config("attending", [*WORDS])
    made = assemble(config, "run", RunFolder.create(tmp_path / "run", config), durable=False)
    yield made
    made.suspend()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[GraphJob]:
    """The jobs of a process that draws one graph for all."""
    jobs: list[GraphJob] = []

    def draw(_: ModelProcess, job: GraphJob) -> Future[Drawn]:
        jobs.append(job)
        found: Future[Drawn] = Future()
        found.set_result(Drawn((b"graph",)))
        return found

    monkeypatch.setattr(ModelProcess, "draw", draw)
    monkeypatch.setattr(graph_export, "known_graphs", lambda *_: iter(()))
    return jobs


def test_every_tier_is_drawn_once_and_its_graph_is_tried_first(
    coordinator: Coordinator, asked: list[GraphJob]
) -> None:
    for _ in range(2):
        coordinator.early_graphs.begin()
    coordinator.early_graphs.wait()
    (job,) = asked
    assert job.model.exists()
    assert list(job.specs) == list(coordinator.model.tier_specs().values())
    assert coordinator.model.network.graphs == (b"graph",)


def test_nothing_is_drawn_that_this_machine_knows(
    coordinator: Coordinator, asked: list[GraphJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_export, "known_graphs", lambda *_: iter((b"known",)))
    coordinator.early_graphs.begin()
    coordinator.early_graphs.wait()
    assert not asked


def test_without_the_process_graphs_are_drawn_when_they_are_needed(
    coordinator: Coordinator, asked: list[GraphJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> Future[Drawn]:
        raise ProcessLost("out of memory")

    monkeypatch.setattr(ModelProcess, "draw", lost)
    coordinator.early_graphs.begin()
    coordinator.early_graphs.wait()
    assert coordinator.model.network.graphs == ()


def test_a_model_that_is_gone_is_asked_for_again_and_a_refusal_is_known(
    coordinator: Coordinator, asked: list[GraphJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[Future[Drawn]] = [Future(), Future()]
    answers[0].set_exception(ProcessLost("FileNotFoundError: round-0000"))
    answers[1].set_result(Drawn((b"graph",), "ONNX has no operator for it"))
    monkeypatch.setattr(ModelProcess, "draw", lambda *_: answers.pop(0))
    coordinator.early_graphs.begin()
    coordinator.early_graphs.wait()
    assert coordinator.early_graphs.refused == "ONNX has no operator for it"
    assert coordinator.model.network.graphs == (b"graph",)


@pytest.mark.skipif("EVERY_NETWORK" not in os.environ, reason="make test-graphs draws in earnest")
def test_the_export_uses_graphs_that_another_process_has_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> bytes:
        raise AssertionError("the graph should have been drawn before")

    monkeypatch.setenv("EDGE_GRAPHS", str(tmp_path / "graphs"))
    monkeypatch.setattr(graph_export, "draw_graph", refused)
    summary = run(tmp_path / "run", "attending", *WORDS, "simulation.clock=[]", export=True)
    assert summary.outcome == "finished", summary.detail
    assert len(summary.onnx) == 5
