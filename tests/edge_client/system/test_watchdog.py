"""Messages to systemd over real sockets, from a service, an agent and a server."""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.service.http import PredictionServer
from edge_client.inference.service.lifecycle import PredictionService
from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import FileSource
from edge_client.inference.service.predictor import Predictor
from edge_client.system.watchdog import Watchdog, watchdog_of
from edge_client.transport.broker_link import parse_address
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.server import Server
from edge_server.storage.run_folder import RunFolder
from schemas.values import CapabilityProfile
from tests.edge_client.inference.test_onnx_model import write_model

PATIENCE_S = 60.0
NOWHERE = parse_address("mqtt://127.0.0.1:1")


class Manager:
    """Fake systemd with the socket that services write to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(PATIENCE_S)

    def receive(self) -> str:
        return self._socket.recv(4096).decode()

    def is_empty(self) -> bool:
        self._socket.setblocking(False)
        try:
            return not self._socket.recv(4096)
        except BlockingIOError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_S)

    def close(self) -> None:
        self._socket.close()

    def environment(self, **more: str) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": "60000000", **more}


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@edge-{uuid.uuid4()}")
    yield made
    made.close()


def test_a_heartbeat_is_sent_only_when_it_is_due(manager):
    dog = watchdog_of(manager.environment())
    assert dog.deadline_s == 60.0
    dog.ready()
    # Three heartbeats per 60 s: at 100 and at 120, not in between.
    for now in (100.0, 100.25, 119.75, 120.0):
        dog.alive(now)
    dog.stopping()
    dog.alive(1000.0)
    assert [manager.receive() for _ in range(4)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"]
    assert manager.is_empty()


@pytest.mark.parametrize(
    "environment",
    [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "relative/socket"}, {"WATCHDOG_USEC": "1000"}],
)
def test_without_a_manager_nothing_is_sent(environment):
    assert watchdog_of(environment) == Watchdog()


@pytest.mark.parametrize("more", [{"WATCHDOG_PID": "1"}, {"WATCHDOG_USEC": "soon"}, {"WATCHDOG_USEC": "0"}])
def test_a_foreign_or_invalid_deadline_is_ignored(manager, more):
    dog = watchdog_of(manager.environment(**more), pid=2)
    assert (dog.address, dog.deadline_s) == (manager.address, None)
    dog.alive(100.0)
    assert manager.is_empty()


def test_the_deadline_of_this_process_is_used(manager):
    assert watchdog_of(manager.environment(WATCHDOG_PID=str(os.getpid()))).deadline_s == 60.0


def test_in_a_container_a_file_shows_the_last_heartbeat(tmp_path):
    file = tmp_path / "alive"
    dog = watchdog_of({"EDGE_HEARTBEAT": str(file)})
    dog.alive(100.0)
    os.utime(file, (5.0, 5.0))
    # Three heartbeats per 30 s: the next one is due at 110.
    dog.alive(109.0)
    assert file.stat().st_mtime == 5.0
    dog.alive(110.0)
    assert file.stat().st_mtime > 5.0


def test_an_unwritable_heartbeat_file_is_ignored(tmp_path):
    dog = watchdog_of({"EDGE_HEARTBEAT": str(tmp_path / "nowhere" / "alive")})
    dog.alive(100.0)
    assert not (tmp_path / "nowhere").exists()


def test_a_missing_manager_is_ignored(manager):
    dog = watchdog_of(manager.environment())
    manager.close()
    Path(manager.address).unlink(missing_ok=True)
    dog.ready()
    dog.alive(100.0)
    assert dog.deadline_s == 60.0


def messages_of(manager: Manager, run: Callable[[], object], stop: Callable[[], None]) -> list[str]:
    """The messages of a service that is stopped after its first heartbeat."""
    received: list[str] = []

    def listen() -> None:
        while "WATCHDOG=1" not in received:
            received.append(manager.receive())
        stop()

    listener = threading.Thread(target=listen)
    listener.start()
    run()
    listener.join(PATIENCE_S)
    return [*received, manager.receive()]


@pytest.fixture
def under_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def agent(folder: Path) -> Agent:
    data = load_source("digits").subset(range(10))
    settings = AgentSettings("federation", "pi", NOWHERE, folder, "digits", CapabilityProfile())
    return Agent(settings, LocalData(data, data))


def test_an_agent_without_a_broker_reports_ready_alive_and_stopping(under_systemd, tmp_path):
    device = agent(tmp_path / "state")
    assert messages_of(under_systemd, device.run, device.stop) == ["READY=1", "WATCHDOG=1", "STOPPING=1"]


def test_each_turn_of_the_agents_loop_sends_a_heartbeat(under_systemd, tmp_path):
    """An agent whose loop hangs therefore sends none."""
    device = agent(tmp_path / "state")
    assert under_systemd.is_empty()
    device.stop()
    device.loop.turn()
    assert device.is_over
    assert under_systemd.receive() == "WATCHDOG=1"
    assert under_systemd.is_empty()


def test_a_model_service_reports_ready_alive_and_stopping(under_systemd, tmp_path):
    predictor = Predictor(FileSource(write_model(tmp_path / "model.onnx")), RequestMetrics())
    predictor.refresh()
    service = PredictionService(predictor, PredictionServer(("127.0.0.1", 0), predictor), poll_s=0.02)
    assert messages_of(under_systemd, service.run, service.stop) == ["READY=1", "WATCHDOG=1", "STOPPING=1"]


class Unseen:
    """A watcher that ignores all events."""

    def show(self, snapshot: object) -> None:
        """Ignore the snapshot."""


def test_a_server_without_a_broker_reports_ready_alive_and_stopping(under_systemd, tmp_path):
    config = load_config("median", ("data.source=digits", "model.name=mlp", "deliver=none"))
    coordinator = assemble(config, "run-1", RunFolder.create(tmp_path / "run", config))
    server = Server(NOWHERE, coordinator, Unseen())
    assert messages_of(under_systemd, server.run, server.stop) == ["READY=1", "WATCHDOG=1", "STOPPING=1"]
