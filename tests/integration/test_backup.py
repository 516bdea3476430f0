"""A run restored from a backup continues to the same model."""

import shutil
from pathlib import Path

import pytest

from edge_client.transport.broker_address import parse_address
from edge_server.coordinator.endings import Suspended
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.storage.records import Summary
from edge_server.transport.broker.launch import running_broker
from tests.integration.conftest import demo_config
from tests.integration.device_threads import devices
from tests.integration.test_resume import ServerRun


def last_state(run: Path) -> bytes:
    """The bytes of the newest global model."""
    return max((run / "models").iterdir()).joinpath("state.safetensors").read_bytes()


@pytest.mark.parametrize("restored", ["runs/original", "elsewhere/copy"])
def test_a_suspended_run_continues_from_a_copy_of_its_folder(tmp_path: Path, restored: str) -> None:
    settings = {"clients.num-clients": 1, "deliver": "none", "rounds": 3, "rejoin-s": 3000.0}
    config = demo_config(**settings, **{"deadline-s": 3000.0})
    whole, folder = tmp_path / "whole", tmp_path / "runs" / "original"
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(config, address, tmp_path / "device-1"):
            assert isinstance(ServerRun(config, address, whole).end(), Summary)
        with devices(config, address, tmp_path / "device-2"):
            run = ServerRun(config, address, folder, planning_2=lambda run: run.server.suspend())
            assert isinstance(run.end(), Suspended)
        backup = tmp_path / restored
        if backup != folder:
            shutil.copytree(folder, backup)
            shutil.rmtree(folder)
        with devices(config, address, tmp_path / "device-2"):
            summary = ServerRun(config, address, backup).end()
    assert (summary.outcome, summary.rounds) == ("finished", 3)
    assert last_state(backup) == last_state(whole)
    assert {round_.verdict for round_ in replay(backup)} == {ReplayVerdict.AGREES}
