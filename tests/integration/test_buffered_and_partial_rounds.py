"""Buffered rounds, over-selection, and algorithms that send more than a model, over a broker."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent import task_runner
from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.settings import TaskContext
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.storage.private_state import PrivateState
from edge_client.transport.broker_link import BrokerAddress
from edge_server.cli.demo import device_name
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.storage.records import RoundRecord
from schemas.messages import Task, Update
from schemas.values import CapabilityProfile
from tests.integration import device_threads
from tests.integration.conftest import Run
from tests.slow import slow

Serve = Callable[[Config], Run]
Start = Callable[[Config], list[Future[str | None]]]

# Other tests compare brokers; one suffices here.
pytestmark = pytest.mark.parametrize("broker", ["embedded"], indirect=True)

TIERS = {"strong": 5, "middle": 3, "weak": 1}
MLP_BYTES = 4 * (64 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10)
"""The model on 8x8 digits: 55,210 parameters of four bytes each, 220,840 bytes."""
NEVER = 99


def config(recipe: str, **overrides: Any) -> Config:
    """Three devices and three rounds; keys as in `demo_config`."""
    settings = {
        "federation.name": "test",
        "data.source": "digits",
        "model.name": "mlp",
        "rounds": 3,
        "num-clients": 3,
        "deadline-s": 60.0,
        "rejoin-s": 5.0,
        "test-samples": 60,
        "strategy.uplink": [],
        "strategy.downlink": [],
        **overrides,
    }
    return load_config(recipe, [f"{key}={value}" for key, value in settings.items()])


class TaskDelay:
    """Delays tasks until a device has started a later round; `cancelled` lists the stopped tasks."""

    def __init__(self, until: Mapping[tuple[str, int], int]) -> None:
        self._until, self._begun = until, threading.Condition()
        self._latest = 0
        self._train = task_runner.do_training
        self.cancelled: list[tuple[str, int]] = []

    def do_training(
        self, task: Task, place: TaskContext, *, should_stop: Callable[[], bool], **more: Any
    ) -> Update:
        """The device's `do_training` after the delay."""
        wanted = self._until.get((place.device, task.round), 0)
        with self._begun:
            self._latest = max(self._latest, task.round)
            self._begun.notify_all()
            while not should_stop() and not self._begun.wait_for(lambda: self._latest >= wanted, 0.02):
                pass
        if should_stop():
            self.cancelled.append((place.device, task.round))
        return self._train(task, place, should_stop=should_stop, **more)


@pytest.fixture
def start(address: BrokerAddress, tmp_path: Path) -> Iterator[Start]:
    """Start the three devices in threads of this process; returns the future outcome of each."""
    agents: list[Agent] = []
    with ThreadPoolExecutor(len(TIERS)) as pool:

        def begin(config: Config) -> list[Future[str | None]]:
            agents.extend(make_agent(config, name, address, tmp_path / name) for name in TIERS)
            return [pool.submit(agent.run) for agent in agents]

        yield begin
        for agent in agents:
            agent.stop()


def make_agent(config: Config, name: str, address: BrokerAddress, state: Path) -> Agent:
    """A device with forty examples."""
    state.mkdir()
    first = 40 * list(TIERS).index(name)
    train, held_out = holdout(load_source("digits").subset(range(first, first + 40)), seed=0)
    settings = AgentSettings(
        config.federation.name,
        name,
        address,
        state,
        source="digits",
        profile=CapabilityProfile(tier=min(TIERS[name], len(config.tiers.ratios))),
        once=True,
        threads=1,
    )
    return Agent(settings, LocalData(train, held_out))


def finished(run: Run, ends: list[Future[str | None]]) -> list[RoundRecord]:
    """Wait for the server and the devices, and check the deliveries; returns the history."""
    summary = run.finished()
    assert [end.result(timeout=30) for end in ends] == ["finished"] * len(TIERS)
    assert summary.outcome == "finished"
    assert {device.device for device in summary.devices} == TIERS.keys()
    delivered = run.server.coordinator.context.config.federation.deliver != "none"
    assert all((device.onnx_accuracy is not None) == delivered for device in summary.devices)
    history = run.server.reporter.counters.history
    assert sum(record.uplink_bytes for record in history) <= summary.uplink_bytes
    assert sum(record.downlink_bytes for record in history) <= summary.downlink_bytes
    return history


SMALL: Mapping[str, Mapping[str, Any]] = {
    "fedbuff": {},
    "attending-fedbuff": {"model.name": "two-nn", "deliver": "none"},
}


@pytest.mark.parametrize("recipe", ["fedbuff", slow("attending-fedbuff")])
def test_a_buffered_round_counts_updates_of_earlier_rounds(
    serve: Serve, start: Start, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    """The weak device finishes round one's task in round two, the middle device two's in three."""
    delay = TaskDelay({("weak", 1): 2, ("middle", 2): 3, ("weak", 3): NEVER})
    monkeypatch.setattr(task_runner, "do_training", delay.do_training)
    settings = config(recipe, **{"buffer-size": 2, **SMALL[recipe]})
    ends = start(settings)
    history = finished(serve(settings), ends)
    assert [record.completed for record in history] == [
        ("middle", "strong"),
        ("strong", "weak"),
        ("middle", "strong"),
    ]
    assert [record.staleness for record in history] == [{}, {"weak": 1}, {"middle": 1}]
    # Both sides drop a task whose update no remaining round can count.
    assert history[2].dropped == ("weak",)
    assert delay.cancelled == [("weak", 3)]
    if recipe == "fedbuff":
        # Six updates counted; seven tasks were sent: three, two and two.
        assert 6 * MLP_BYTES < sum(record.uplink_bytes for record in history) < 6.2 * MLP_BYTES
        assert 7 * MLP_BYTES < sum(record.downlink_bytes for record in history) < 7.2 * MLP_BYTES


def test_a_device_drops_an_outdated_task_and_participates_again(
    serve: Serve, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = TaskDelay({("weak", 1): NEVER, ("middle", 2): NEVER, ("strong", 3): NEVER})
    monkeypatch.setattr(task_runner, "do_training", delay.do_training)
    settings = config("fedbuff", **{"buffer-size": 2, "max-staleness": 0, "deliver": "none"})
    ends = start(settings)
    history = finished(serve(settings), ends)
    assert [record.completed for record in history] == [
        ("middle", "strong"),
        ("strong", "weak"),
        ("middle", "weak"),
    ]
    assert [record.dropped for record in history] == [("weak",), ("middle",), ("strong",)]
    assert delay.cancelled == [("weak", 1), ("middle", 2), ("strong", 3)]
    assert all(record.staleness == {} for record in history)


def test_over_selection_cancels_slow_devices_and_selects_them_again(
    serve: Serve, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = TaskDelay({("weak", 1): NEVER, ("weak", 2): NEVER, ("strong", 3): NEVER})
    monkeypatch.setattr(task_runner, "do_training", delay.do_training)
    # Two of three are needed; 1.5 times as many are selected.
    settings = config("fedavg", **{"fraction": 0.6, "over-select": 1.5, "deliver": "none"})
    ends = start(settings)
    history = finished(serve(settings), ends)
    assert [record.selected for record in history] == [("middle", "strong", "weak")] * 3
    assert [record.dropped for record in history] == [("weak",), ("weak",), ("strong",)]
    assert delay.cancelled == [("weak", 1), ("weak", 2), ("strong", 3)]
    # Two updates per round; the model is broadcast once, and sent again to late devices.
    for record in history:
        assert 2 * MLP_BYTES < record.uplink_bytes < 2.2 * MLP_BYTES
        assert MLP_BYTES < record.downlink_bytes < 3.2 * MLP_BYTES


def test_scaffold_sends_control_variates_and_each_device_keeps_its_own(
    serve: Serve, address: BrokerAddress, tmp_path: Path
) -> None:
    settings = config("scaffold", fraction=1.0, deliver="none")
    with device_threads.devices(settings, address, tmp_path / "devices") as ends:
        run = serve(settings)
        summary = run.finished()
        assert [end.result(timeout=30) for end in ends] == ["finished"] * 3
    assert summary.outcome == "finished"
    for record in run.server.reporter.counters.history:
        assert len(record.completed) == 3
        # Model and control variate have equal size: from three devices, broadcast once, again to late ones.
        assert 6 * MLP_BYTES < record.uplink_bytes < 6.2 * MLP_BYTES
        assert 2 * MLP_BYTES < record.downlink_bytes < 6.2 * MLP_BYTES
    for index in range(3):
        kept = PrivateState(tmp_path / "devices" / device_name(index) / "private")
        control = kept.load_groups(summary.run, 4)["own-control"]
        assert any(array.any() for array in control.values())
