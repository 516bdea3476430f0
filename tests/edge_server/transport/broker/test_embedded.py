"""The embedded broker as a process: hostile clients, limits, start and end."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_server.transport.broker.encoding import encode
from edge_server.transport.broker.launch import RunningBroker
from edge_server.transport.broker.packets import V5, V311, ConnAck, Connect, Disconnect, Filter, Publish, Will
from edge_server.transport.broker.properties import Prop, number
from edge_server.transport.broker.wire import Code

from .clients import DEADLINE_S, Raw

Start = Callable[..., RunningBroker]


@pytest.fixture
def version() -> int:
    return V5


@pytest.fixture
def broker(embedded: RunningBroker) -> RunningBroker:
    return embedded


@pytest.fixture
def start() -> Iterator[Start]:
    """Start brokers with the given options; their log goes to `stderr`."""
    children: list[subprocess.Popen[str]] = []

    def run(*options: str, stderr: Path | None = None) -> RunningBroker:
        command = [sys.executable, "-m", "edge_server.transport.broker", "--port", "0", *options]
        with contextlib.ExitStack() as files:
            errors = files.enter_context(stderr.open("w")) if stderr else subprocess.DEVNULL
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        children.append(child)
        assert child.stdout is not None
        word, host, port = child.stdout.readline().split()
        assert word == "listening"
        return RunningBroker("embedded", host, int(port), child.pid)

    yield run
    for child in children:
        child.kill()
        child.communicate()


def test_the_broker_announces_its_features(raw: Callable[[], Raw], name: str) -> None:
    reported = raw().join(name).properties
    assert number(reported, Prop.MAXIMUM_QOS, 9) == 1
    assert number(reported, Prop.TOPIC_ALIAS_MAXIMUM, 9) == 0
    assert number(reported, Prop.SHARED_SUBSCRIPTIONS_AVAILABLE, 9) == 1
    assert number(reported, Prop.SUBSCRIPTION_IDS_AVAILABLE, 9) == 0


def test_a_take_over_is_explained(raw: Callable[[], Raw], name: str) -> None:
    old, new = raw(), raw()
    old.join(name)
    new.join(name)
    assert old.until_closed() == [Disconnect(Code.TAKEN_OVER)]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("34 06 000161 0001 00", Code.QOS_NOT_SUPPORTED),
        ("30 80808001", Code.TOO_LARGE),
        ("30 04 000123 00", Code.BAD_TOPIC),
        ("f0 00", Code.PROTOCOL_ERROR),
        ("30 ffffffff", Code.MALFORMED),
    ],
)
def test_a_protocol_error_is_answered_with_its_code_and_publishes_the_will(
    raw: Callable[[], Raw], name: str, data: str, code: Code
) -> None:
    watcher, client = raw(), raw()
    watcher.join(f"{name}-w")
    watcher.subscribe(Filter(name))
    client.join(name, will=Will(name, b"offline"))
    client.socket.sendall(bytes.fromhex(data))
    assert client.until_closed() == [Disconnect(code)]
    assert watcher.receive() == Publish(name, b"offline")


def test_the_refusal_reaches_a_client_that_is_still_sending(raw: Callable[[], Raw], name: str) -> None:
    client = raw()
    client.join(name)
    with contextlib.suppress(ConnectionError):
        client.socket.sendall(b"\x30\x80\x80\x80\x01" + bytes(2 << 20))
    assert client.until_closed() == [Disconnect(Code.TOO_LARGE)]


def test_an_unknown_version_is_refused_with_an_mqtt_3_answer(broker: RunningBroker) -> None:
    client = Raw(broker, V311)
    client.socket.sendall(bytes.fromhex("10 0f 00064d5149736470 03 02 003c 000161"))
    assert client.until_closed() == [ConnAck(code=1)]
    client.close()


@pytest.mark.parametrize(
    ("connect", "code"),
    [
        (Connect(V311, "", clean_start=False), 2),
        (Connect(V5, "a", will=Will("w", b"", qos=2)), Code.QOS_NOT_SUPPORTED),
    ],
)
def test_a_refused_connect_is_answered_in_its_own_version(
    broker: RunningBroker, connect: Connect, code: int
) -> None:
    client = Raw(broker, connect.version)
    client.send(connect)
    assert client.until_closed() == [ConnAck(code=code)]
    client.close()


def test_packets_may_arrive_byte_by_byte_or_many_at_once(raw: Callable[[], Raw], name: str) -> None:
    client = raw()
    client.join(name)
    client.subscribe(Filter(f"{name}/#", 0))
    sent = [bytes([size % 256]) * size for size in (0, 1, 4090, 4096, 5000, 70_000)]
    stream = b"".join(encode(Publish(f"{name}/x", payload), V5) for payload in sent)
    for at in range(5000):
        client.socket.sendall(stream[at : at + 1])
    client.socket.sendall(stream[5000:])
    assert [getattr(client.receive(), "payload", None) for _ in sent] == sent


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(garbage=st.binary(min_size=1, max_size=200), connected=st.booleans())
def test_garbage_does_not_disturb_other_clients(
    embedded: RunningBroker, garbage: bytes, connected: bool
) -> None:
    hostile = Raw(embedded)
    with contextlib.suppress(ConnectionError):
        if connected:
            hostile.send(Connect(V5, "hostile"))
        hostile.socket.sendall(garbage)
    hostile.close()
    healthy = Raw(embedded)
    healthy.join("healthy")
    assert healthy.until_ping() == []
    healthy.close()


def test_a_malformed_packet_is_logged_in_one_line(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    broker = start(stderr=log)
    client = Raw(broker)
    client.join("clumsy")
    client.socket.sendall(b"\xff" * 50)
    client.until_closed()
    lines = log.read_text().splitlines()
    assert len(lines) == 1
    assert "clumsy" in lines[0]
    assert "edge_server.transport.broker" in lines[0]


def test_one_connection_too_many_is_closed_and_a_freed_place_is_reused(start: Start) -> None:
    broker = start("--connections", "2")
    first, second, third = Raw(broker), Raw(broker), Raw(broker)
    first.join("first")
    second.join("second")
    assert third.until_closed() == []
    second.send(Disconnect())
    second.until_closed()
    fourth = Raw(broker)
    fourth.join("fourth")
    for client in (first, second, third, fourth):
        client.close()


def test_a_client_that_never_reads_costs_a_bounded_amount_of_memory(start: Start) -> None:
    broker = start("--output-bytes", "1000000", "--queue-bytes", "4000000")
    slow, sender = Raw(broker), Raw(broker)
    slow.join("slow")
    slow.subscribe(Filter("t/#", 1))
    sender.join("sender")
    before = _resident_mb(broker.pid)
    # 100 MB at each QoS; the slow client may use 1 + 4 MB and the system's socket buffers.
    for number_ in range(200):
        sender.send(Publish("t/0", bytes(500_000)))
        sender.send(Publish("t/1", bytes(500_000), 1, packet_id=number_ + 1))
        sender.receive()
    assert sender.until_ping() == []
    assert _resident_mb(broker.pid) - before < 40
    slow.close()
    sender.close()


def _resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize("number_", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_broker_with_code_0_and_disconnects_its_clients(number_: signal.Signals) -> None:
    command = [sys.executable, "-m", "edge_server.transport.broker", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        _, host, port = child.stdout.readline().split()
        client = Raw(RunningBroker("embedded", host, int(port), child.pid))
        client.join("client")
        child.send_signal(number_)
        assert client.until_closed() == [Disconnect(Code.SHUTTING_DOWN)]
        client.close()
        out, err = child.communicate(timeout=DEADLINE_S)
        assert (child.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1"])
def test_the_broker_refuses_addresses_other_than_loopback(host: str) -> None:
    command = [sys.executable, "-m", "edge_server.transport.broker", "--port", "0", "--host", host]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "loopback" in ended.stderr or "127.0.0.1" in ended.stderr


def test_a_port_in_use_is_a_clear_error(broker: RunningBroker) -> None:
    command = [sys.executable, "-m", "edge_server.transport.broker", "--port", str(broker.port)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 2
    assert f"cannot listen on 127.0.0.1 port {broker.port}" in ended.stderr


@pytest.mark.parametrize(
    "options", [["--port", "70000"], ["--inflight", "0"], ["--packet-bytes", "300000000"]]
)
def test_an_impossible_number_is_a_clear_error(options: list[str]) -> None:
    command = [sys.executable, "-m", "edge_server.transport.broker", "--port", "0", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: ")
    assert len(ended.stderr.splitlines()) == 1


def test_the_help_explains_limits_and_scope() -> None:
    command = [sys.executable, "-m", "edge_server.transport.broker", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    for word in ("--queue-bytes", "loopback", "nothing to disk", "listening HOST PORT"):
        assert word in ended.stdout


def test_answers_are_not_delayed(broker: RunningBroker) -> None:
    # With Nagle's algorithm and delayed acknowledgments 50 exchanges would take about 2 s.
    client = Raw(broker)
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.join("prompt")
    client.socket.settimeout(1.0)
    for number_ in range(1, 51):
        client.send(Publish("prompt", b"x", 1, packet_id=number_))
        assert client.receive() is not None
    client.close()
