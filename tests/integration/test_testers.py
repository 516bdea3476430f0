"""A server whose models are tested in a process beside the next round, over a real broker."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.jobs import Jobs
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.round_record import fields_of_test
from edge_server.coordinator.server import Suspended
from edge_server.storage.journal_reader import JournalReader
from edge_server.transport.broker.launch import running_broker
from schemas.tensors.files import FileGroups
from tests.integration.conftest import demo_config
from tests.integration.device_threads import devices
from tests.integration.test_resume import ServerRun


def lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


def journaled(out: Path) -> list[tuple[int, bool]]:
    """The closed rounds of the journal, and whether their tests have ended."""
    with closing(JournalReader(out / "journal.sqlite")) as reader:
        return [(closed.round, closed.tested) for closed in reader.rounds()]


def test_a_server_that_stops_before_a_test_has_ended_tests_that_model_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = {"clients.num-clients": 2, "deliver": "none", "rejoin-s": 30.0, "rounds": 3, "testers": 1}
    config, out = demo_config(**words), tmp_path / "run"
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "devices"):
            with monkeypatch.context() as unrecorded:
                unrecorded.setattr(Jobs, "record_round", lambda jobs: None)
                stopped = ServerRun(config, address, out, planning_2=lambda run: run.server.suspend())
                assert isinstance(stopped.end(), Suspended)
            assert (journaled(out), lines(out)) == ([(1, False)], [])
            again = ServerRun(config, address, out)
            summary = again.end()
    assert (summary.outcome, summary.rounds) == ("finished", 3)
    assert journaled(out) == [(1, True), (2, True), (3, True)]
    assert [line["round"] for line in lines(out)] == [1, 2, 3]
    assert summary.test_accuracy == lines(out)[-1]["test_accuracy"]
    assert {result.verdict for result in replay(out)} == {ReplayVerdict.AGREES}
    model, testing = again.coordinator.model, again.coordinator.context.testing
    for line in lines(out):
        arrays = FileGroups(out / "models" / f"round-{line['round']:04d}" / "state.safetensors")["model"]
        params = {name: np.array(arrays[name]) for name in arrays}
        specs = testing.due(line["round"], model.tier_spec)
        found = fields_of_test(testing.test(model.network, {0: specs[0]}, lambda _, own=params: own), ())
        assert (line["test_loss"], line["test_metrics"]) == (found["test_loss"], found["test_metrics"])
        assert len(line["tier_accuracy"]) == len(specs) - 1
