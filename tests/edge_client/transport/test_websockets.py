"""MQTT over WebSockets, with Mosquitto's own listener for it."""

import time
import uuid
from pathlib import Path

import pytest

from edge_client.cli.doctor.broker import broker
from edge_client.cli.doctor.network import network
from edge_client.transport.broker_link import Arrived, BrokerAddress, LinkUp, TlsFiles, parse_address
from tests.edge_client.cli.doctor.test_broker import mosquitto, reported
from tests.edge_client.transport.test_mqtt_client import Owner, wait_until_subscribed
from tests.edge_server.security.identity.conftest import free_ports, identity, new_authority

MODES = ["plain", "with certificates"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("ws://host", BrokerAddress("host", 80, path="/mqtt")),
        ("ws://host:9001/", BrokerAddress("host", 9001, path="/")),
        ("wss://me:secret@host/a/b", BrokerAddress("host", 443, TlsFiles(), "me", "secret", "/a/b")),
    ],
)
def test_an_address_names_port_and_path(url: str, expected: BrokerAddress) -> None:
    assert parse_address(url) == expected
    assert parse_address(str(expected)).path == expected.path


@pytest.mark.parametrize("mode", MODES)
def test_a_message_in_parts_travels_both_ways(mode: str, tmp_path: Path) -> None:
    # 2.0.11 does not start with a listener for WebSockets alone.
    (port,) = free_ports(1)
    lines, files = [f"listener {port} 127.0.0.1", "protocol websockets"], None
    if mode != "plain":
        authority = new_authority(tmp_path / "authority")
        files = identity(authority, "pi", tmp_path / "pi")
        lines += [f"cafile {authority.broker}/ca.pem", f"certfile {authority.broker}/broker.pem"]
        lines += [f"keyfile {authority.broker}/broker.key", "require_certificate true"]
    with mosquitto(tmp_path, *lines):
        address = parse_address(f"{'ws' if files is None else 'wss'}://localhost:{port}/mqtt", files)
        topic = f"t/{uuid.uuid4().hex}"
        owner = Owner(address, filters=(topic,))
        owner.link.open()
        try:
            owner.next(LinkUp)
            wait_until_subscribed(owner, topic)
            payload = b"{" + bytes(20_000)  # 2.0.11 sends 4 kB in 0.1 s
            owner.link.fit(15 * 1024)
            owner.link.publish(topic, payload)
            assert owner.next(Arrived, payload=payload)
        finally:
            owner.link.close()
        assert {finding.level for finding in network(address, "pi", time.time())} <= {"ok", "warning"}
        assert reported(broker(address, "home", "pi"), "mqtt").level == "ok"
