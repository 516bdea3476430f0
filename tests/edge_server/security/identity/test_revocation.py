"""A revoked device is refused when it connects, and its open connection ends."""

import queue
from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.transport.broker_link import LinkDown, LinkUp
from edge_client.transport.mqtt_client import Link
from edge_server.cli.main import main
from edge_server.security.identity.enrolment_codes import issue_code
from edge_server.security.identity.revocation import copy_revocation_list
from schemas.topics import Channel, DeviceTopic
from tests.edge_server.security.identity.clients import Client, refusal
from tests.edge_server.security.identity.conftest import (
    DEADLINE_S,
    FEDERATION,
    address_of,
    identity,
    server_files,
)


def revoke(authority, device, *words):
    return main(["revoke", device, "--authority", str(authority.folder), *map(str, words)])


def test_a_revoked_device_is_disconnected_and_the_server_receives_its_will(authority, mosquitto, tmp_path):
    files, birth = (
        identity(authority, "gone", tmp_path / "gone"),
        f"fed/v1/{FEDERATION}/devices/gone/up/birth",
    )
    address, inbox = address_of(authority, files), queue.SimpleQueue()
    server = Client(address_of(authority, server_files(authority)))
    server.subscribe(f"fed/v1/{FEDERATION}/devices/+/up/#")
    link = Link(address, inbox, client_id="gone", filters=(), will=lambda session: (birth, b"will"))
    link.open()
    try:
        assert isinstance(inbox.get(timeout=DEADLINE_S), LinkUp)
        assert revoke(authority, "gone", "--mosquitto-pid", mosquitto.pid) == 0
        # With TLS 1.3 the broker's reason may arrive too late to be read; the next attempt shows it.
        while "is revoked: ask for a new one" not in (end := inbox.get(timeout=DEADLINE_S)).reason:
            assert isinstance(end, LinkDown)
        assert server.hear() == (birth, b"will")
        assert "revoked" in refusal(address)
    finally:
        link.close()
        server.close()


def test_other_devices_stay_connected_and_can_connect(authority, mosquitto, tmp_path):
    addresses = {
        name: address_of(authority, identity(authority, name, tmp_path / name)) for name in ("bad", "good")
    }
    good, server = Client(addresses["good"]), Client(address_of(authority, server_files(authority)))
    topic = str(DeviceTopic(FEDERATION, "good", Channel.DOWN))
    good.subscribe(topic)
    assert revoke(authority, "bad", "--mosquitto-pid", mosquitto.pid) == 0
    server.publish(topic, b"still here")
    assert good.hear() == (topic, b"still here")
    assert refusal(addresses["good"]) == ""
    for client in (good, server):
        client.close()


def test_a_device_revoked_by_mistake_can_connect_with_another_certificate(authority, mosquitto, tmp_path):
    old = address_of(authority, identity(authority, "back", tmp_path / "old"))
    pid_file = tmp_path / "pid"
    pid_file.write_text(f"{mosquitto.pid}\n")
    assert revoke(authority, "back", "--mosquitto-pid-file", pid_file) == 0
    new = address_of(authority, identity(authority, "back", tmp_path / "new"))
    assert "revoked" in refusal(old)
    assert refusal(new) == ""


def test_without_a_pid_the_command_prints_the_remaining_steps(authority, tmp_path, capsys):
    identity(authority, "later", tmp_path / "later")
    issue_code(authority, "later", lifetime_s=60)
    assert revoke(authority, "later") == 0
    output = capsys.readouterr().out
    assert "later: 1 certificate revoked, no code is left" in output
    assert str(authority.broker / "revoked.crl") in output
    assert "send Mosquitto SIGHUP" in output
    assert not [path for path in (authority.folder / "codes").iterdir() if "later" in path.read_text()]


def test_the_revocation_list_is_copied_to_a_broker_with_its_own_folder(authority, tmp_path):
    """The existing file is overwritten, because it belongs to Mosquitto's user."""
    identity(authority, "moved", tmp_path / "moved")
    settings = authority.settings.model_copy(update={"broker_folder": str(tmp_path / "broker")})
    elsewhere = replace(authority, settings=settings)
    assert "No such file or directory" in copy_revocation_list(elsewhere)
    (tmp_path / "broker").mkdir()
    copy = tmp_path / "broker" / "revoked.crl"
    copy.write_bytes(b"x" * 10_000)
    number = copy.stat().st_ino
    authority.revoke("moved")
    assert copy_revocation_list(elsewhere) is None
    assert copy.read_bytes() == (authority.broker / "revoked.crl").read_bytes()
    assert copy.stat().st_ino == number


def test_revoking_a_device_that_has_only_a_code_withdraws_it(authority, capsys):
    issue_code(authority, "coded", lifetime_s=60)
    assert revoke(authority, "coded") == 0
    assert "0 certificates revoked" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("kitchn",), "no device 'kitchn' was enrolled (did you mean 'kitchen'?)"),
        (("kitchen", "--mosquitto-pid-file", "/nowhere"), "/nowhere is not a pid file"),
        (("kitchen", "--mosquitto-pid", "4194305"), "process 4194305 cannot be sent SIGHUP"),
        (("kitchen", "--authority", "/nowhere"), "there is no authority in /nowhere"),
    ],
)
def test_errors_are_reported(authority, tmp_path: Path, capsys, words, message):
    identity(authority, "kitchen", tmp_path / "kitchen")
    assert revoke(authority, *words) == 2
    assert message in capsys.readouterr().err
