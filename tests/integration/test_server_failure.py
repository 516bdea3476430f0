"""A server with an internal error ends the run as failed, with a reason, and informs the devices."""

from collections.abc import Callable
from pathlib import Path

import pytest

from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.config import Config
from edge_server.coordinator.aggregator import Aggregator
from tests.integration.conftest import Run, demo_config
from tests.integration.device_threads import devices


def test_a_round_that_cannot_be_aggregated_ends_the_run_as_failed(
    serve: Callable[[Config], Run], address: BrokerAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise FloatingPointError("the sum of weights is zero")

    monkeypatch.setattr(Aggregator, "close", broken)
    config = demo_config(**{"clients.num-clients": 1})
    with devices(config, address, tmp_path / "devices") as ends:
        run = serve(config)
        summary = run.finished()
        assert [end.result(timeout=60) for end in ends] == ["failed"]
    assert summary.outcome == "failed"
    assert "the sum of weights is zero" in summary.detail
    assert (run.folder.path / "summary.json").exists()
