"""Secure aggregation over real sockets with a device that is killed after the key agreement."""

import subprocess
from pathlib import Path

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.cli.demo import device_name, start_device
from edge_server.observability.snapshot import Snapshot
from edge_server.security.secure_aggregation.protocol import Stage
from edge_server.transport.broker.launch import running_broker
from tests.integration import device_threads
from tests.integration.conftest import DEADLINE_S, Run, Watched, demo_config

WORDS = {
    "clients.num-clients": 4,
    "deliver": "none",
    "rounds": 1,
    "local-epochs": 10,
    "model.name": "mlp",
    "secure-aggregation": "true",
    "strategy.pruner": '"index"',
    "strategy.transforms": "[]",
    "tiers.ratios": "[0.5, 0.0]",
    "min-holders": 3,
}


class KillsOnceMasking(Watched):
    """Kills a device once keys are agreed, in the thread of the server, which goes no further meanwhile."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__()
        self.run: Run | None = None
        self._process = process

    def show(self, snapshot: Snapshot) -> None:
        masking = self.run and self.run.server.driver.federation.masking
        if masking and masking.stage is Stage.MASKING:
            self._process.kill()
        super().show(snapshot)


def test_a_device_that_is_killed_after_the_key_agreement_is_unmasked(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Unmasking needs three of four devices, so one may be lost: it is killed while it imports torch."""
    config = demo_config(**WORDS)
    lost = device_name(0)
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        process = start_device(config, address, tmp_path / "devices", 0)
        request.addfinalizer(lambda: process.wait(DEADLINE_S))
        request.addfinalizer(process.kill)
        scope = device_threads.devices(config, address, tmp_path / "devices", first=1)
        scope.__enter__()
        request.addfinalizer(lambda: scope.__exit__(None, None, None))
        watcher = KillsOnceMasking(process)
        watcher.run = run = Run(config, address, tmp_path / "run", watcher=watcher)
        request.addfinalizer(run.stop)
        summary = run.finished()
    (record,) = run.server.reporter.counters.history
    assert summary.outcome == "finished"
    assert record.dropped == (lost,)
    assert set(record.completed) == set(record.selected) - {lost}
