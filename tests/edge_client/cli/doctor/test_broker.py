"""Findings about absent, healthy and faulty brokers."""

import contextlib
import os
import queue
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

import edge_client.cli.doctor.broker
from edge_client.cli.doctor.broker import broker, packets
from edge_client.cli.doctor.finding import Finding
from edge_client.cli.doctor.network import network
from edge_client.cli.main import main
from edge_client.transport.broker_link import BrokerAddress, TlsFiles, parse_address
from edge_client.transport.mqtt_client import Link
from edge_server.transport.broker.launch import find_mosquitto, running_broker
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, decode_message, encode_message
from schemas.topics import Channel, DeviceTopic, server_filters
from tests.edge_client.transport.test_mqtt_client import OldBroker, wait_for
from tests.edge_server.security.identity import conftest

NOW = time.time()
DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def _no_server_answers_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for a server; tests with a server lengthen it again."""
    monkeypatch.setattr(edge_client.cli.doctor.broker, "ANSWER_S", 0.2)


@contextlib.contextmanager
def mosquitto(folder: Path, *lines: str) -> Iterator[BrokerAddress]:
    """A real Mosquitto broker without access control, with `lines` added to its configuration."""
    binary = find_mosquitto()
    if binary is None:
        pytest.skip("no mosquitto on this machine")
    (port,) = conftest.free_ports(1)
    user = ["user root"] if os.geteuid() == 0 else []
    conf, log = folder / "mosquitto.conf", folder / "mosquitto.log"
    conf.write_text("\n".join([f"listener {port} 127.0.0.1", "allow_anonymous true", *user, *lines]) + "\n")
    with log.open("wb") as output:
        child = subprocess.Popen([binary, "-c", str(conf)], stdout=output, stderr=output)
    try:
        conftest._await_port(child, port, log)
        yield parse_address(f"mqtt://127.0.0.1:{port}")
    finally:
        child.terminate()
        child.wait(timeout=30)


@contextlib.contextmanager
def server(address: BrokerAddress, federation: str, files: TlsFiles | None = None) -> Iterator[None]:
    """Refuse every blob request as unknown, as `edge-server run` does."""
    ready: queue.SimpleQueue[bool] = queue.SimpleQueue()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="server", protocol=mqtt.MQTTv5)

    def answer(_client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        asked = decode_message(message.payload)
        if isinstance(asked, BlobRequest):
            refusal = Refusal(
                federation=federation, device=asked.device, reason=Reason.UNKNOWN_BLOB, digest=asked.digest
            )
            client.publish(
                str(DeviceTopic(federation, asked.device, Channel.DOWN)), encode_message(refusal), qos=1
            )

    client.on_message = answer
    client.on_subscribe = lambda *_: ready.put(True)
    if files is not None:
        client.tls_set(str(files.ca), str(files.certificate), str(files.key))
    client.connect(address.host, address.port)
    client.loop_start()
    try:
        client.subscribe([(filter_, 1) for filter_ in server_filters(federation)])
        assert ready.get(timeout=30)
        yield
    finally:
        client.disconnect()
        client.loop_stop()


def levels(found: Iterator[Finding]) -> dict[str, str]:
    return {finding.check: finding.level for finding in found}


def reported(found: Iterator[Finding], check: str) -> Finding:
    return next(finding for finding in found if finding.check == check)


def test_an_absent_broker_is_a_failure_with_its_address() -> None:
    (port,) = conftest.free_ports(1)
    (found,) = network(parse_address(f"mqtt://127.0.0.1:{port}"), "pi", NOW)
    assert found.level == "failure"
    assert str(port) in found.detail
    assert "start the broker" in found.remedy


def test_an_unknown_host_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    (found,) = network(parse_address("mqtt://no-such-host.invalid"), "pi", NOW)
    assert found.level == "failure"
    assert "no-such-host.invalid" in found.detail


def test_the_command_prints_failures_and_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_client.cli.doctor.libraries.TRIALS", {"numpy": "import numpy as m"})
    (port,) = conftest.free_ports(1)
    words = ["doctor", "--state-dir", str(tmp_path), "--broker", f"mqtt://127.0.0.1:{port}"]
    assert main(words) == 1
    printed = capsys.readouterr().out
    assert "refuses connections" in printed
    assert "import numpy" in printed
    assert main([*words, "--offline"]) == 0


def test_the_embedded_broker_with_a_server_is_healthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_client.cli.doctor.broker, "ANSWER_S", 30.0)
    with running_broker("embedded", tmp_path) as running:
        address = parse_address(running.url)
        assert levels(network(address, "pi", NOW)) == {"broker": "ok"}
        with server(address, "home"):
            found = list(broker(address, "home", "pi"))
    assert [(finding.check, finding.level) for finding in found] == [
        ("mqtt", "ok"),
        ("packet limit", "ok"),
        ("may subscribe", "ok"),
        ("may publish", "ok"),
        ("server", "ok"),
    ]


def test_a_missing_server_is_only_a_warning(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as address:
        found = reported(broker(address, "home", "pi"), "server")
    assert found.level == "warning"
    assert "edge-server run" in found.remedy


def test_access_rules_that_forbid_a_device_its_own_topics_are_detected(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text("topic read fed/v1/home/#\ntopic write fed/v1/home/devices/other/up/#\n")
    rules.chmod(0o600)
    with mosquitto(tmp_path, f"acl_file {rules}") as address:
        refused = reported(broker(address, "home", "pi"), "may publish")
        assert refused.level == "failure"
        assert "Not authorized" in refused.detail
        assert "fed/v1/home/devices/pi/up/#" in refused.remedy
        assert reported(broker(address, "home", "other"), "may publish").level == "ok"


def test_a_broker_that_requires_a_login_refuses_anonymous_clients(tmp_path: Path) -> None:
    with mosquitto(tmp_path, "allow_anonymous false") as address:
        found = list(broker(address, "home", "pi"))
    assert [(finding.check, finding.level) for finding in found] == [("mqtt", "failure")]
    assert "certificate" in found[0].remedy


@pytest.mark.parametrize(
    ("most", "level"),
    # Chunks of 262,144 and of 15,360 bytes, plus 1,024 bytes of overhead.
    [(None, "ok"), (263_168, "ok"), (263_167, "warning"), (16_384, "warning"), (16_383, "failure")],
)
def test_a_packet_limit_is_compared_with_the_chunk_sizes(most: int | None, level: str) -> None:
    assert packets(most).level == level


@pytest.mark.parametrize(
    ("line", "level", "words"),
    [
        ("max_packet_size 100000", "warning", "100000 bytes; chunks of 64 kB come back"),
        ("message_size_limit 65535", "warning", "none announced; chunks of 31 kB come back"),
        ("message_size_limit 20000", "warning", "chunks of 15 kB come back"),
        ("message_size_limit 10000", "failure", "not even 16384 bytes pass"),
        ("max_packet_size 16000", "failure", "16000 bytes: not even 16384 bytes pass"),
    ],
)
def test_the_packet_size_that_the_broker_forwards_is_probed(
    tmp_path: Path, line: str, level: str, words: str
) -> None:
    with mosquitto(tmp_path, line) as address:
        found = reported(broker(address, "home", "pi"), "packet limit")
    assert found.level == level
    assert words in found.detail


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerAddress, Path]]:
    """The address of a broker set up by `edge-server enroll`, with the device's certificate, and a folder."""
    folder = tmp_path_factory.mktemp("authority")
    authority = conftest.new_authority(folder / "authority")
    files = conftest.identity(authority, "pi", folder / "pi")
    with conftest.running_mosquitto(authority) as running:
        assert isinstance(running, conftest.Mosquitto)
        with server(
            conftest.address_of(authority, files), conftest.FEDERATION, conftest.server_files(authority)
        ):
            yield conftest.address_of(authority, files), folder


def test_an_enrolled_device_has_no_findings_above_ok(
    place: tuple[BrokerAddress, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edge_client.cli.doctor.broker, "ANSWER_S", 30.0)
    address, _ = place
    reached = levels(network(address, "pi", NOW))
    assert reached == {"broker": "ok", "certificate": "ok", "tls": "ok"}
    found = list(broker(address, conftest.FEDERATION, "pi"))
    assert set(levels(found).values()) == {"ok"}
    assert "chunks of 256 kB come back" in reported(found, "packet limit").detail


def test_a_wrong_authority_is_detected(place: tuple[BrokerAddress, Path]) -> None:
    address, folder = place
    assert address.tls is not None
    other = conftest.new_authority(folder / "other")
    wrong = folder / "wrong.pem"
    wrong.write_bytes(other.ca_pem)
    files = TlsFiles(wrong, address.tls.certificate, address.tls.key)
    found = reported(network(BrokerAddress(address.host, address.port, files), "pi", NOW), "tls")
    assert found.level == "failure"
    assert "not signed by the authority" in found.detail
    assert "--ca" in found.remedy or "wrong" in found.remedy


def test_a_foreign_or_expired_certificate_is_reported(place: tuple[BrokerAddress, Path]) -> None:
    address, _ = place
    somebody = reported(network(address, "other", NOW), "certificate")
    assert somebody.level == "failure"
    assert "'pi'" in somebody.detail
    much_later = reported(network(address, "pi", NOW + 20 * 365 * DAY_S), "certificate")
    assert much_later.level == "failure"
    assert "expired" in much_later.detail
    assert "edge-server enroll" in much_later.remedy


def test_a_broker_without_tls_is_reported(place: tuple[BrokerAddress, Path], tmp_path: Path) -> None:
    address, _ = place
    with mosquitto(tmp_path) as plain:
        mixed = BrokerAddress(plain.host, plain.port, address.tls)
        found = reported(network(mixed, "pi", NOW), "tls")
    assert found.level == "failure"
    assert found.remedy


def test_the_probe_connects_as_the_client_does_and_falls_back_with_it(monkeypatch) -> None:
    """amqtt 0.12.1 answers no CONNECT that has properties, and would look healthy to a barer probe."""
    monkeypatch.setattr(edge_client.cli.doctor.broker, "PATIENCE_S", 0.3)
    mute = OldBroker(b"")
    try:
        address = BrokerAddress("127.0.0.1", mute.port)
        probed = next(iter(broker(address, "home", "pi")))
        assert (probed.level, probed.detail) == ("ok", "connected, version 3.1.1")
        link = Link(address, queue.SimpleQueue(), client_id="home-pi-doctor", filters=())
        link.open()
        wait_for(lambda: len(mute.connects) == 3)
        link.close()
        assert mute.connects[0] == mute.connects[2]
    finally:
        mute.close()
