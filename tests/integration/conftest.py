"""Real brokers, real device processes, a real server in this process."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.server import Server
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.storage.records import Summary
from edge_server.storage.run_folder import RunFolder
from edge_server.transport.broker.launch import RunningBroker, find_mosquitto, running_broker
from edge_server.transport.object_store.store import ObjectStore
from tests.forked import ForkedCommand, start_forked

DEADLINE_S = 90
BROKERS = ["embedded", "mosquitto"]
ONE_BROKER = pytest.mark.parametrize("broker", [BROKERS[find_mosquitto() is not None]], indirect=True)
"""For long tests that do not depend on the broker: only Mosquitto if installed, else the embedded one."""


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningBroker]:
    """Each test runs on both brokers."""
    if request.param == "mosquitto" and find_mosquitto() is None:
        pytest.skip("no mosquitto on this machine")
    with running_broker(request.param, tmp_path / "broker") as running:
        yield running


@pytest.fixture
def address(broker: RunningBroker) -> BrokerAddress:
    """The broker's address."""
    return parse_address(broker.url)


def demo_config(**overrides: Any) -> Config:
    """Five devices on digits, small enough for a test."""
    settings = {
        "federation.name": "test",
        "model.name": "mlp",
        "rounds": 2,
        "local-epochs": 1,
        "rejoin-s": 2.0,
        "deadline-s": 60.0,
        **overrides,
    }
    words = [f"{key}={value}" for key, value in settings.items()]
    return load_config("edge_server/cli/demo.toml", words)


class Watched:
    """A watcher with which a test waits for a condition of the run."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.last: Snapshot | None = None

    def show(self, snapshot: Snapshot) -> None:
        with self._changed:
            self.last = snapshot
            self._changed.notify_all()

    def until(self, condition: Callable[[Snapshot], bool]) -> Snapshot:
        """Wait for a snapshot that fulfils `condition`."""
        with self._changed:
            seen = self._changed.wait_for(
                lambda: self.last is not None and condition(self.last), timeout=DEADLINE_S
            )
        assert seen, f"not in {DEADLINE_S} s; last: {self.last}"
        assert self.last is not None
        return self.last


class Run:
    """A server in a thread of this process."""

    def __init__(
        self,
        config: Config,
        address: BrokerAddress,
        folder: Path,
        *,
        object_store: ObjectStore | None = None,
        watcher: Watcher | None = None,
    ) -> None:
        self.watched = Watched()
        self.folder = RunFolder.create(folder, config)
        coordinator = assemble(config, "run-1", self.folder, object_store=object_store)
        self.server = Server(address, coordinator, watcher or self.watched)
        self.summary: Summary | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="server", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self.summary = self.server.run()
        except BaseException as error:
            self._error = error

    def finished(self, *, within_s: float = DEADLINE_S) -> Summary:
        """Wait for the end; raises the server's exception."""
        self._thread.join(timeout=within_s)
        if self._error is not None:
            raise self._error
        assert self.summary is not None, f"not finished in {within_s} s; last: {self.watched.last}"
        return self.summary

    def stop(self) -> None:
        """Stop the server if it still runs."""
        self.server.stop()
        self._thread.join(timeout=DEADLINE_S)


@pytest.fixture
def serve(address: BrokerAddress, tmp_path: Path) -> Iterator[Callable[[Config], Run]]:
    """Start a server; it is stopped after the test."""
    runs: list[Run] = []

    def start(config: Config) -> Run:
        runs.append(Run(config, address, tmp_path / "run"))
        return runs[-1]

    yield start
    for run in runs:
        run.stop()


Command = Callable[..., ForkedCommand]


@pytest.fixture
def command() -> Iterator[Command]:
    """Start `edge-server` or `edge-client` with arguments; processes are killed after the test."""
    started: list[ForkedCommand] = []

    def start(program: str, *words: str) -> ForkedCommand:
        started.append(start_forked(program, *words))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def read_until(process: ForkedCommand, text: str) -> str:
    """Output up to the line that contains `text`."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"ended without {text!r}: {''.join(lines)}")
