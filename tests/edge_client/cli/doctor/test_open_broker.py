"""Brokers that let anyone publish and subscribe as any device are detected and reported."""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from edge_client.cli.doctor.broker import strangers
from edge_client.transport.broker_link import BrokerAddress, is_loopback
from edge_server.cli.main import main
from edge_server.coordinator.launch import warn_of_open_broker
from edge_server.transport.broker import packets
from edge_server.transport.broker.server import serving
from edge_server.transport.broker.session import Limits
from tests.edge_client.cli.doctor.test_broker import mosquitto
from tests.edge_server.security.identity import conftest

DEADLINE_S = 30.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_client.cli.doctor.broker.ANSWER_S", 1.0)


def test_a_broker_without_access_control_is_reported(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as address:
        found = strangers(address, "home")
    assert found.level == "warning"
    assert "lets anyone in" in found.detail
    assert "edge-server enroll" in found.remedy


@contextlib.contextmanager
def in_this_process() -> Iterator[BrokerAddress]:
    """The embedded broker, in a thread."""
    loop, place = asyncio.new_event_loop(), serving("127.0.0.1", 0, Limits())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        address = asyncio.run_coroutine_threadsafe(place.__aenter__(), loop).result(DEADLINE_S)
        yield BrokerAddress(*address)
        asyncio.run_coroutine_threadsafe(place.__aexit__(None, None, None), loop).result(DEADLINE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_S)
        loop.close()


def test_an_open_broker_that_refuses_3_1_1_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a listener of rumqttd for version 5, or Mosquitto 2.1 with `accept_protocol_versions 5`."""
    known = SimpleNamespace(**{**vars(packets), "V311": None})
    monkeypatch.setattr("edge_server.transport.broker.decoding.packets", known)
    with in_this_process() as address:
        assert strangers(address, "home").level == "warning"


@pytest.mark.parametrize("line", ["allow_anonymous false", "acl"])
def test_a_broker_with_logins_or_access_rules_passes(tmp_path: Path, line: str) -> None:
    rules = tmp_path / "acl"
    rules.write_text("user somebody\ntopic readwrite #\n")
    rules.chmod(0o600)
    with mosquitto(tmp_path, f"acl_file {rules}" if line == "acl" else line) as address:
        assert strangers(address, "home").level == "ok"


def test_a_broker_set_up_by_enroll_passes(tmp_path: Path) -> None:
    authority = conftest.new_authority(tmp_path / "authority")
    files = conftest.identity(authority, "pi", tmp_path / "pi")
    with conftest.running_mosquitto(authority):
        assert strangers(conftest.address_of(authority, files), conftest.FEDERATION).level == "ok"


def test_the_check_command_warns_of_an_open_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["model.name=mlp", "model.num-classes=10", "model.input-shape=[1, 8, 8]"]
    with mosquitto(tmp_path) as address:
        assert main(["check", "fedavg", *words, "--broker", str(address)]) == 0
    assert "# warning: strangers:" in capsys.readouterr().out


def test_the_start_of_a_run_warns_of_an_open_broker_that_others_can_reach(tmp_path: Path) -> None:
    warned: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    with mosquitto(tmp_path) as address:
        warn_of_open_broker(address, "home", lambda *warning: warned.put(warning))
        assert warned.empty()
        warn_of_open_broker(address, "home", lambda *warning: warned.put(warning), loopback=True)
        what, detail = warned.get(timeout=DEADLINE_S)
    assert what == "broker without access control:"
    assert "every client can publish" in detail


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("192.168.1.10", False), ("broker.lan", False)],
)
def test_only_loopback_hosts_count_as_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
