"""Processes of `multiprocessing` that start fast, for tests of what runs in them and not of their start."""

import pytest

from edge_server.coordinator.aggregators import pool
from edge_server.coordinator.worker_processes import start_fork_server, worker_context
from edge_server.simulation.experiments import runner

PRELOADED = (
    "edge_server.coordinator.aggregators.worker",
    "edge_server.simulation.experiments.runner",
    "tests.edge_server.simulation.experiments.made_up",
)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process of `multiprocessing` is forked from one that has imported the packages."""
    context = worker_context(PRELOADED)
    start_fork_server(context)
    for module in (pool, runner):
        monkeypatch.setattr(module, "spawn_context", lambda: context)
