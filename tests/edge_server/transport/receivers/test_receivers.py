"""Receivers as processes: they share the work, and a killed receiver is replaced."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_server.transport.broker.launch import RunningBroker, running_broker
from edge_server.transport.receivers.messages import Misfit, Placed, Ready, Unable
from edge_server.transport.receivers.pool import FromReceiver, ReceiverLost, ReceiverPool
from schemas.errors import ConfigError
from schemas.tensors.chunks import BlobRef, digest_of, encode_chunk
from schemas.topics import Channel, DeviceTopic
from tests.mqtt_clients import connected_client

DEADLINE_S = 60.0
DATA = bytes(range(250)) * 80
# Twenty chunks: 19 of 1024 bytes and one of 544.
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=1024)
TOPIC = str(DeviceTopic("field", "a", Channel.UP_BLOB))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker("embedded", tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def device(broker: RunningBroker) -> Iterator[mqtt.Client]:
    with connected_client(broker.host, broker.port) as client:
        yield client


def await_kind(inbox: queue.SimpleQueue[Any], kind: type, *, within_s: float = DEADLINE_S) -> Any:
    """Return the next event of a kind, or the next message of that kind from a receiver."""
    while True:
        event = inbox.get(timeout=within_s)
        message = event.message if isinstance(event, FromReceiver) else event
        assert not isinstance(message, Unable), message
        if isinstance(message, kind):
            return message


def send(device: mqtt.Client, indices: Iterable[int]) -> None:
    for index in indices:
        frame = encode_chunk(REF.digest, index, DATA[index * 1024 : (index + 1) * 1024])
        device.publish(TOPIC, frame, qos=1)


def test_a_blob_is_assembled_although_a_receiver_is_killed(
    broker: RunningBroker, device: mqtt.Client, tmp_path: Path
) -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    receivers = ReceiverPool(2, "field", BrokerAddress(broker.host, broker.port), tmp_path, inbox)
    receivers.open()
    try:
        for _ in range(2):
            await_kind(inbox, Ready)
        receivers.expect("a", REF)
        send(device, range(10))
        assert {await_kind(inbox, Placed).index for _ in range(10)} == set(range(10))
        os.kill(receivers.pids[0], signal.SIGKILL)
        receivers.replace(await_kind(inbox, ReceiverLost))
        await_kind(inbox, Ready)
        # The new receiver knows what the killed one expected. Devices send the lost chunks again.
        missing = set(range(10, 20))
        for _ in range(5):
            send(device, missing)
            with contextlib.suppress(queue.Empty):
                while missing:
                    missing.discard(await_kind(inbox, Placed, within_s=DEADLINE_S / 5).index)
        assert not missing
        device.publish(TOPIC, b"no chunk", qos=1)
        assert await_kind(inbox, Misfit).device == "a"
    finally:
        receivers.close()
    assert BlobStore(tmp_path).verify(REF)


def test_a_message_under_an_invalid_device_name_does_not_end_a_receiver(
    broker: RunningBroker, device: mqtt.Client, tmp_path: Path
) -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    receivers = ReceiverPool(1, "field", BrokerAddress(broker.host, broker.port), tmp_path, inbox)
    receivers.open()
    try:
        await_kind(inbox, Ready)
        event = None
        # The receiver has sent its subscription, but the broker may not have granted it yet.
        for _ in range(5):
            device.publish(TOPIC.replace("/a/", "/no name/"), b"x", qos=1)
            device.publish(TOPIC, b"no chunk", qos=1)
            with contextlib.suppress(queue.Empty):
                event = inbox.get(timeout=DEADLINE_S / 20)
                break
        assert isinstance(event, FromReceiver)
        assert isinstance(event.message, Misfit)
    finally:
        receivers.close()


def test_a_receiver_that_dies_in_the_middle_of_a_message_is_reported_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    receivers = ReceiverPool(1, "field", BrokerAddress("localhost", 1883), tmp_path, inbox)
    words = [sys.executable, "-c", """print('{"kind":"ready"}\\n{"kind":"pla', end="")"""]
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **pipes: start(words, **pipes))
    receivers.open()
    try:
        assert await_kind(inbox, Ready) == Ready()
        assert await_kind(inbox, ReceiverLost) == ReceiverLost(0)
    finally:
        receivers.close()


def test_receivers_do_not_share_one_certificate(tmp_path: Path) -> None:
    address = BrokerAddress("localhost", 8883, TlsFiles(certificate=tmp_path / "server.pem"))
    with pytest.raises(ConfigError, match="receivers at 0"):
        ReceiverPool(1, "field", address, tmp_path, queue.SimpleQueue())
