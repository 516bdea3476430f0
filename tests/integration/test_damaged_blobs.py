"""Damaged blobs on the server's disk: the server names them, rebuilds them from the model, and continues."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.config.config import Config
from edge_server.coordinator.planner import Planner
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.standby.writing_right import Suspended
from edge_server.transport.broker.launch import running_broker
from tests.integration.conftest import demo_config
from tests.integration.device_threads import devices
from tests.integration.test_resume import ServerRun
from tests.slow import slow


def config(**more: Any) -> Config:
    """Two devices of different tiers that share blobs, without a deadline."""
    settings = {
        "clients.num-clients": 2,
        "deliver": "none",
        "rounds": 2,
        "deadline-s": 3000.0,
        "rejoin-s": 3000.0,
    }
    return demo_config(**{**settings, "test-samples": 20, **more})


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


CHANGES = {"strategy.downlink": '["delta", "int8", "zstd"]'}
"""Devices receive the change since their model; a lost change is replaced by a full model."""
DAMAGES = pytest.mark.parametrize(
    ("settings", "damage"),
    [pytest.param({}, flip, id="flip"), slow(CHANGES, cut, id="cut"), slow({}, Path.unlink, id="unlink")],
)


def blobs(out: Path) -> list[Path]:
    return [path for path in (out / "blobs").iterdir() if len(path.name) == 64]


@DAMAGES
def test_blobs_damaged_while_the_server_was_down(
    tmp_path: Path, settings: dict[str, Any], damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    chosen, out = config(**settings), tmp_path / "run"
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(chosen, address, tmp_path / "before"):
            run = ServerRun(chosen, address, out, planning_2=lambda run: run.server.suspend())
            assert isinstance(run.end(), Suspended)
        damaged = [path.name for path in blobs(out)]
        for path in blobs(out):
            damage(path)
        # New devices need every blob.
        with devices(chosen, address, tmp_path / "after"):
            summary = ServerRun(chosen, address, out).end()
    assert summary.outcome == "finished"
    assert summary.rounds == 2
    rebuilt = [line for line in caplog.messages if "made again" in line]
    assert any(name in line for name in damaged for line in rebuilt)
    assert {result.verdict for result in replay(out)} == {ReplayVerdict.AGREES}


@DAMAGES
def test_blobs_damaged_during_the_run_are_rebuilt_when_a_device_cannot_use_them(
    tmp_path: Path,
    settings: dict[str, Any],
    damage: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plan = Planner.plan

    def planned(planner: Planner, command: Any, **options: Any) -> Any:
        event = plan(planner, command, **options)
        if command.round == 2 and not command.retry:
            for path in blobs(tmp_path / "run"):
                damage(path)
        return event

    monkeypatch.setattr(Planner, "plan", planned)
    chosen = config(**settings)
    with running_broker("embedded", tmp_path / "broker") as broker:
        address = parse_address(broker.url)
        with devices(chosen, address, tmp_path / "devices"):
            summary = ServerRun(chosen, address, tmp_path / "run").end()
    assert (summary.outcome, summary.rounds) == ("finished", 2)
    assert any("made again" in line for line in caplog.messages)
