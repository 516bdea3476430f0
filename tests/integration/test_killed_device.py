"""A device process is killed and restarted, with a real broker and server.

An event triggers the kill (a chunk that arrives, a reported epoch), so it always interrupts the work.
"""

import queue
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.storage.state_file import read_plain
from edge_client.transport import chunk_transfer
from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.transport.broker.launch import running_broker
from schemas.messages import Birth, Telemetry, Update, decode_message
from schemas.tensors.chunks import BlobRef, Chunk, decode_chunk
from tests.forked import ForkedCommand, start_forked
from tests.integration.conftest import DEADLINE_S, Run

DEVICE = "pi"
START = Callable[[str], ForkedCommand]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[BrokerAddress]:
    with running_broker("auto", tmp_path / "broker") as running:
        yield parse_address(running.url)


def config(**overrides: Any) -> Config:
    """One device, for whose return the server waits."""
    settings = {
        "federation.name": "test",
        "data.source": "digits",
        "num-clients": 1,
        "min-clients": 1,
        "rounds": 2,
        "local-epochs": 2,
        "deadline-s": 80.0,
        "rejoin-s": 80.0,
        "test-samples": 60,
        "deliver": "none",
        "strategy.uplink": "[]",
        **overrides,
    }
    return load_config("scaffold", [f"{key}={value}" for key, value in settings.items()])


class Observer:
    """Records the device's messages in order."""

    def __init__(self, address: BrokerAddress) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.messages: list[Any] = []
        ready = threading.Event()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.on_connect = lambda *_: self.client.subscribe(f"fed/v1/test/devices/{DEVICE}/#", qos=1)
        self.client.on_subscribe = lambda *_: ready.set()
        self.client.on_message = self._note
        self.client.connect(address.host, address.port)
        self.client.loop_start()
        assert ready.wait(DEADLINE_S)

    def _note(self, client: Any, userdata: Any, message: mqtt.MQTTMessage) -> None:
        if "/down/" in message.topic:
            return
        blob = message.topic.endswith("/up/blob")
        self._queue.put(decode_chunk(message.payload) if blob else decode_message(message.payload))

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The next message that fulfils `wanted`."""
        while True:
            self.messages.append(self._queue.get(timeout=DEADLINE_S))
            if wanted(self.messages[-1]):
                return self.messages[-1]

    def all(self) -> list[Any]:
        """All messages so far."""
        while not self._queue.empty():
            self.messages.append(self._queue.get())
        return self.messages


def by_process(messages: list[Any]) -> list[list[Any]]:
    """The messages of each process of the device, each beginning with its birth."""
    births = [index for index, message in enumerate(messages) if isinstance(message, Birth)]
    return [messages[start:end] for start, end in zip(births, [*births[1:], None], strict=True)]


def chunks(messages: list[Any], ref: BlobRef) -> list[int]:
    sent = [message for message in messages if isinstance(message, Chunk)]
    return [chunk.index for chunk in sent if ref.digest.startswith(chunk.prefix)]


@pytest.fixture
def observer(address: BrokerAddress) -> Iterator[Observer]:
    observing = Observer(address)
    yield observing
    observing.client.disconnect()
    observing.client.loop_stop()


@pytest.fixture
def begin(address: BrokerAddress, tmp_path: Path) -> Iterator[START]:
    """Start the device's process with a log file of the given name."""
    begun: list[ForkedCommand] = []

    def start(log: str) -> ForkedCommand:
        words = {
            "--broker": address,
            "--federation": "test",
            "--device-id": DEVICE,
            "--tier": 5,
            "--threads": 1,
            "--data": "digits",
            "--share": "1/12",
            "--state-dir": tmp_path / "state",
            "--checkpoint-s": 0.001,
        }
        options = [word for pair in words.items() for word in pair]
        process = start_forked("edge-client", "run", "--once", *options, log=tmp_path / log)
        begun.append(process)
        return process

    yield start
    for process in begun:
        kill(process)


def kill(process: ForkedCommand) -> None:
    process.kill()
    process.wait(timeout=DEADLINE_S)


def test_a_device_killed_during_an_upload_sends_only_the_missing_chunks(
    observer: Observer,
    begin: START,
    serve: Callable[[Config], Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The server requests two chunks at a time, so some are not requested when the device is killed.
    monkeypatch.setattr(chunk_transfer, "WINDOW", 2)
    first = begin("first.log")
    write, stored, killed = BlobStore.write_chunk, [], threading.Event()

    def write_and_kill(
        store: BlobStore, ref: BlobRef, index: int, data: bytes, crc: int | None = None
    ) -> None:
        """Kill the device while the server waits."""
        write(store, ref, index, data, crc)
        stored.append(index)
        if len(stored) == 2:
            kill(first)
            killed.set()

    monkeypatch.setattr(BlobStore, "write_chunk", write_and_kill)
    run = serve(config())
    assert killed.wait(DEADLINE_S)
    assert [path.suffix for path in (tmp_path / "state/private/run-1").iterdir()] == [".proposed"]
    second = begin("second.log")
    assert run.finished().outcome == "finished"
    assert second.wait(timeout=DEADLINE_S) == 0

    before_kill, after_kill = by_process(observer.all())
    update = next(message for message in before_kill if isinstance(message, Update))
    everything = set(range(update.blob.chunks))
    before, after = set(chunks(before_kill, update.blob)), set(chunks(after_kill, update.blob))
    assert 2 <= len(before) < len(everything)
    assert after == everything - before
    assert next(message for message in after_kill if isinstance(message, Update)) == update
    assert (after_kill[0].device, after_kill[0].session > before_kill[0].session) == (
        before_kill[0].device,
        True,
    )
    # The round was trained once, and the next round started from its private state.
    assert "round 1: train" in (tmp_path / "first.log").read_text()
    log = (tmp_path / "second.log").read_text()
    assert ("round 1: train" in log, "round 2: train" in log) == (False, True)
    assert PrivateState(tmp_path / "state/private").load_groups("run-1", 2).keys() == {"own-control"}
    assert [record.completed for record in run.server.reporter.counters.history] == [(DEVICE,), (DEVICE,)]


def test_a_device_killed_during_training_resumes_after_the_last_saved_epoch(
    observer: Observer, begin: START, serve: Callable[[Config], Run], tmp_path: Path
) -> None:
    first = begin("first.log")
    run = serve(config(**{"rounds": 1, "local-epochs": 200, "model.name": "mlp"}))
    reported = observer.until(lambda sent: isinstance(sent, Telemetry) and sent.epoch is not None)
    kill(first)
    assert reported.epoch < 200
    # Training may be some epochs ahead of what the device has reported.
    (checkpoint,) = (tmp_path / "state/epochs").glob("*.safetensors")
    saved = len(read_plain(checkpoint)["training"]["losses"])
    second = begin("second.log")
    assert run.finished().outcome == "finished"
    assert second.wait(timeout=DEADLINE_S) == 0

    resumed = re.findall(r"epoch (\d+) of 200", (tmp_path / "second.log").read_text())
    assert [int(number) for number in resumed] == list(range(saved + 1, 201))
    (update,) = {sent.blob.digest: sent for sent in observer.all() if isinstance(sent, Update)}.values()
    assert update.metrics.epochs == 200
    assert list((tmp_path / "state/epochs").iterdir()) == []
