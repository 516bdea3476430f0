"""Home Assistant at a real broker: a device appears, installs a model by button, dies and is cleared."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.inference.model_slots import ServedModel, Slots
from edge_client.transport.broker_link import parse_address
from edge_server.config.object_store import HomeAssistantSettings
from edge_server.observability.integrations.home_assistant.service import HomeAssistant
from edge_server.observability.snapshot import Snapshot
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.transport.broker.launch import running_broker
from schemas.messages import encode_message
from schemas.security.manifest import decode_manifest, manifest_path
from schemas.topics import Channel, DeviceTopic
from tests.edge_server.observability.integrations.home_assistant.field import DEADLINE_S, Listener, Run
from tests.edge_server.observability.integrations.home_assistant.moments import (
    GARAGE,
    KITCHEN,
    PLACES,
    named,
    snapshot,
)
from tests.edge_server.observability.integrations.home_assistant.published import discovery, update_state
from tests.edge_server.releases.rollout.fleet import birth
from tests.edge_server.releases.rollout.sample_versions import entered, fitted, key_in
from tests.forked import forked_python

FILTERS = ("homeassistant/#", "fed/v1/home/home/#")
SETTINGS = HomeAssistantSettings(discovery=True, watch_s=0.0)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_broker("auto", tmp_path / "broker") as running:
        yield running.url


def home(url: str, registry: Path, *, settled_s: float = 30.0) -> HomeAssistant:
    address = parse_address(url)
    return HomeAssistant(SETTINGS, "home", registry, address=address, rollout=address, settled_s=settled_s)


@pytest.fixture
def device(url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`edge-client run` as pi-1: it serves v0; v1 is approved."""
    registry, signer = Registry(tmp_path / "registry"), key_in(tmp_path)
    first = entered(registry, "v0", fitted(), signer)
    registry.set_active(entered(registry, "v1", fitted() * 2, signer))
    path, slots = registry.onnx("v0", 1), Slots(tmp_path / "pi-1" / "serving")
    note = ServedModel(version="v0", digest=first.tiers[0].sha256)
    slots.fill(path.read_bytes(), note, signed=decode_manifest(manifest_path(path).read_bytes()))
    slots.switch(note.digest)
    words = ["--broker", url, "--federation", "home", "--device-id", "pi-1", "--data", "digits"]
    words += ["--tier", "1", "--share", "1/2", "--state-dir", str(tmp_path / "pi-1")]
    with (tmp_path / "client.log").open("wb") as log:
        command = [*forked_python(), "-m", "edge_client.cli.main", "run", *words]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=DEADLINE_S)


def test_a_device_appears_installs_the_approved_model_by_button_dies_and_is_cleared(
    url, device, tmp_path
) -> None:
    listener, edge = Listener(url, *FILTERS), home(url, tmp_path / "registry")
    edge.open()
    try:
        with Run(url, edge):
            config = PLACES.config("pi-1")
            found = discovery(config, listener.until(lambda topic, payload: topic == config))
            listener.on(PLACES.of("pi-1", "availability"), b"online")
            update = PLACES.of("pi-1", "update")
            reported = update_state(listener.until(lambda topic, payload: topic == update))
            assert (reported.installed_version, reported.latest_version) == ("unknown", "v1")
            button = found.components["model"]
            listener.link.publish(button.command_topic, button.payload_install.encode())
            listener.until(lambda topic, payload: topic == update and update_state(payload).in_progress)
            ended = update_state(
                listener.until(
                    lambda topic, payload: topic == update and not update_state(payload).in_progress
                )
            )
            assert "pi-1 keeps it" in ended.release_summary, (tmp_path / "client.log").read_text()
            assert ended.installed_version == ended.latest_version == "v1"
            current = Slots(tmp_path / "pi-1" / "serving").current()
            assert current is not None
            assert current.model.version == "v1"
            device.kill()
            listener.on(PLACES.of("pi-1", "availability"), b"offline")
            # A revocation clears the birth message too.
            listener.link.publish(str(DeviceTopic("home", "pi-1", Channel.BIRTH)), b"", retain=True)
            listener.on(config, b"")
            listener.on(update, b"")
    finally:
        edge.close()
        listener.link.close()


def test_removed_devices_are_cleared_and_offline_devices_are_not(url, tmp_path) -> None:
    """An earlier run published two devices; the broker still has the birth message of `away` only."""
    listener, edge = Listener(url, *FILTERS), home(url, tmp_path / "registry", settled_s=0.5)
    for name in ("left", "away"):
        listener.link.publish(PLACES.config(name), b'{"an":"earlier run"}', retain=True)
    listener.link.publish("homeassistant/device/office/left/config", b'{"of":"others"}', retain=True)
    listener.link.publish(
        str(DeviceTopic("home", "away", Channel.BIRTH)), encode_message(birth("away")), retain=True
    )
    edge.open()
    try:
        edge.show(snapshot(KITCHEN))
        listener.on(PLACES.of("away", "availability"), b"offline")
        listener.on(PLACES.config("left"), b"")
        listener.on(PLACES.of("left", "update"), b"")
        cleared = {topic for topic, payload in listener.received if payload == b""}
        assert cleared <= set(PLACES.all_of("left"))
    finally:
        edge.close()
        listener.link.close()


def test_the_service_is_offline_without_a_server_and_publishes_all_again_after_a_reconnect(
    url, tmp_path
) -> None:
    listener, edge = Listener(url, *FILTERS), home(url, tmp_path / "registry")
    edge.open()
    try:
        edge.show(snapshot(KITCHEN, GARAGE))
        listener.on(PLACES.status, b"online")
        listener.on(PLACES.of("pi_garage", "availability"), b"offline")
        listener.until(lambda topic, payload: topic == PLACES.of("pi_garage", "update"))
        # Another connection with the same client id ends this one, as the loss of the broker would.
        listener.received.clear()
        other = Listener(url, name="home-home")
        other.link.close()
        listener.on(PLACES.status, b"offline")
        listener.on(PLACES.status, b"online")
        listener.until(lambda topic, payload: topic == PLACES.config("pi-4.kitchen"))
    finally:
        edge.close()
    listener.on(PLACES.status, b"offline")
    listener.link.close()


def test_the_last_state_of_a_device_is_sent_however_soon_the_run_ends(url, tmp_path) -> None:
    listener, edge = Listener(url, *FILTERS), home(url, tmp_path / "registry")
    state = PLACES.of(KITCHEN.device, "state")
    edge.open()
    edge.show(snapshot(KITCHEN))
    listener.until(lambda topic, payload: topic == state)
    edge.show(snapshot(named(KITCHEN.device, accuracy=1.0)))
    edge.close()
    listener.until(lambda topic, payload: topic == state and json.loads(payload)["accuracy"] == 100)
    listener.on(PLACES.status, b"offline")
    listener.link.close()


def test_the_button_of_an_unknown_device_starts_nothing(url, tmp_path) -> None:
    registry = Registry(tmp_path / "registry")
    registry.set_active(entered(registry, "v1", fitted(), key_in(tmp_path)))
    listener, edge = Listener(url, *FILTERS), home(url, registry.folder)
    edge.open()
    try:
        edge.show(snapshot(KITCHEN))
        update = PLACES.of("pi-4.kitchen", "update")
        listener.until(lambda topic, payload: topic == update)
        listener.link.publish(PLACES.of("nobody", "install"), b"install")
        listener.link.publish(PLACES.of("pi-4.kitchen", "install"), b"anything")
        # A retained press would repeat, so the button is cleared; this shows that both presses were read.
        listener.on(PLACES.of("nobody", "install"), b"install")
        listener.on(PLACES.of("nobody", "install"), b"")
        assert RolloutJournal(registry).newest("home") == []
        assert json.loads(listener.received[-1][1] or b"{}") == {}
    finally:
        edge.close()
        listener.link.close()


def test_a_snapshot_is_taken_without_waiting_for_the_broker(tmp_path) -> None:
    """The server's own thread shows the snapshot; it publishes nothing and does not wait."""
    edge = home("mqtt://127.0.0.1:1", tmp_path / "registry")
    moment: Snapshot = snapshot(KITCHEN)
    edge.show(moment)
    assert edge.inbox.empty()
    assert edge.sent.payloads == {}
