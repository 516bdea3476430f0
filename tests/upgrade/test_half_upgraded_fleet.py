"""A fleet in which some programs are of the version before finishes its rounds."""

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.cli.demo import device_name, end_device, start_device
from edge_server.config.config import Config
from edge_server.transport.broker.launch import running_broker
from tests.integration.conftest import DEADLINE_S, demo_config, read_until
from tests.upgrade.version_before import TODAY, install_before, why_not
from tests.wheel import ROOT

MISSING = why_not()
pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.timeout(600)]
WORDS = ("num-clients=4", "local-epochs=1", "deadline-s=60", "rejoin-s=60", "federation.name=test")
Program = tuple[str, ...]
"""How a module of one version is run."""


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The version before, built and installed once."""
    return install_before(tmp_path_factory.mktemp("before"))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[BrokerAddress]:
    """A broker."""
    with running_broker("embedded", tmp_path / "broker") as broker:
        yield parse_address(broker.url)


class Boards:
    """The device processes of a test, each of some version."""

    def __init__(self, config: Config, address: BrokerAddress, state: Path) -> None:
        self._config, self._address, self._state = config, address, state
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, index: int, version: Program) -> None:
        """Start a board, or start it again with another version and the state that it has."""
        if index in self._running:
            end_device(self._running[index])
        program = (*version, "edge_client.cli.main")
        self._running[index] = start_device(self._config, self._address, self._state, index, program)

    def end(self) -> None:
        """End all of them."""
        for process in self._running.values():
            end_device(process)

    def log(self) -> str:
        """What the boards have said."""
        logs = [self._state / device_name(index) / "client.log" for index in self._running]
        return "\n".join(f"{path.parent.name}: {path.read_text()[-2000:]}" for path in logs)


@pytest.fixture
def boards(address: BrokerAddress, tmp_path: Path) -> Iterator[Boards]:
    """Four boards."""
    made = Boards(demo_config(**{"num-clients": 4}), address, tmp_path / "boards")
    with contextlib.closing(_Closing(made.end)):
        yield made


class _Closing:
    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close


DEMO = ROOT / "edge_server/cli/demo.toml"


def serve(
    version: Program, address: BrokerAddress, out: Path, *words: str, file: Path = DEMO
) -> subprocess.Popen[str]:
    """A server of some version."""
    command = [*version, "edge_server.cli.main", "run", str(file), *WORDS, *words]
    return subprocess.Popen(
        [*command, "--broker", str(address), "--out", str(out), "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT if version == TODAY else out.parent,
    )


def finished(server: subprocess.Popen[str], out: Path, boards: Boards) -> list[int]:
    """Wait for the end of a run; returns how many boards completed each round."""
    try:
        said, _ = server.communicate(timeout=3 * DEADLINE_S)
    finally:
        server.kill()
    assert server.returncode == 0, said + boards.log()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["outcome"] == "finished", said
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in history] == list(range(1, len(history) + 1))
    return [len(line["completed"]) for line in history]


def test_versions_are_two(before: Program) -> None:
    def where(program: Program) -> str:
        command = [*program[:-1], "-c", "import edge_client; print(edge_client.__file__)"]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout.strip()

    assert where(TODAY) == str(ROOT / "edge_client" / "__init__.py")
    assert "site-packages" in where(before)
    assert sys.executable != before[0]


@pytest.mark.parametrize("serving", ["today", "before"])
def test_half_of_the_boards_are_upgraded(
    serving: str, before: Program, address: BrokerAddress, boards: Boards, tmp_path: Path
) -> None:
    """Two runs: in the second one the boards serve the models that the first has delivered."""
    version = TODAY if serving == "today" else before
    for number in (1, 2):
        out = tmp_path / f"run-{number}"
        server = serve(version, address, out, "rounds=2")
        for index in range(4):
            boards.start(index, before if index < 2 else TODAY)
        assert finished(server, out, boards) == [4, 4]


def test_an_upgrade_in_the_middle_of_a_run(
    before: Program, address: BrokerAddress, boards: Boards, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    server = serve(before, address, out, "rounds=40", "deliver=none")
    for index in range(4):
        boards.start(index, before)
    read_until(server, '"round":2')
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 143
    closed = len((out / "history.jsonl").read_text().splitlines())
    boards.start(0, TODAY)
    boards.start(1, TODAY)
    # Defaults may have changed: the run's own file has those that it began with.
    own = out / "federation.toml"
    server = serve(TODAY, address, out, f"rounds={closed + 3}", "deliver=none", file=own)
    completed = finished(server, out, boards)
    assert len(completed) == closed + 3
    assert completed[-1] == 4
