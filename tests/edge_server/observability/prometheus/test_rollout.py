"""The metrics of a rollout for Prometheus."""

import urllib.request

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry

from edge_server.cli.main import EDGE_SERVER
from edge_server.observability.prometheus.cli_option import rollout_watcher
from edge_server.observability.prometheus.collector import RolloutCollector
from edge_server.releases.rollout.state import Rollout
from schemas.messages.rollout import Cause, Stage
from tests.edge_server.releases.rollout.fleet import World


def test_devices_are_counted_by_status_and_tier() -> None:
    collector, registry = RolloutCollector(), CollectorRegistry()
    registry.register(collector)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"edge_server_rollout_{name}", labels)

    assert value("groups") is None
    world = World().begin("a", "b", "c", "d", "e")
    collector.show(world.rollout, "")
    # One device of five is the canary; the other four wait in two groups.
    assert (value("groups"), value("open_groups")) == (3, 1)
    assert value("devices", status="asked", tier="1") == 1
    assert value("devices", status="waiting", tier="1") == 4
    assert value("info", federation="home", version="v2") == 1
    (canary,) = world.group(0)
    world.say(canary, Stage.SWITCHED)
    world.say(canary, Stage.ROLLED_BACK, Cause.ERRORS)
    collector.show(world.rollout, "no connection")
    assert value("devices", status="rolled back", tier="1") == 1
    assert value("devices", status="asked", tier="1") == 0
    assert value("phase", phase="running") == 0
    assert value("phase", phase=str(world.rollout.phase)) == 1
    assert registry.get_sample_value("edge_server_broker_connected") == 0


def test_the_option_does_not_change_the_progress_lines(capsys: pytest.CaptureFixture[str]) -> None:
    world, shown = World().begin("a"), list[tuple[Rollout, str]]()
    for text in (None, "127.0.0.1:0"):
        with rollout_watcher(text, lambda *reported: shown.append(reported)) as show:
            show(world.rollout, "")
            printed = capsys.readouterr().err
            assert bool(printed) == (text is not None)
            if printed:
                with urllib.request.urlopen(printed.split()[-1], timeout=20) as answer:
                    assert b'edge_server_rollout_phase{phase="running"} 1.0' in answer.read()
    assert shown == [(world.rollout, "")] * 2


def test_the_rollout_command_accepts_the_option() -> None:
    args = EDGE_SERVER.parser().parse_args(["rollout", "v2", "--metrics"])
    assert args.metrics == "127.0.0.1:9464"
