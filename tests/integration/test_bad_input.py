"""Malformed messages to a running server are counted and refused, and the run continues."""

import queue
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.config import Config
from schemas import messages
from schemas.base import fields_of
from schemas.errors import Reason
from schemas.tensors.chunks import BlobRef, digest_of, encode_chunk
from schemas.values import DataCard
from tests.groups import encode_groups
from tests.integration.conftest import DEADLINE_S, Run, demo_config
from tests.integration.device_threads import devices
from tests.schemas.examples import plain_update

Serve = Callable[[Config], Run]
BASE = "fed/v1/test/devices"
CARD = DataCard(source="digits", examples=50, input_shape=(1, 8, 8), num_classes=10)


class Rogue:
    """A raw MQTT client that sends arbitrary bytes as device `mallory`."""

    def __init__(self, address: BrokerAddress) -> None:
        self.inbox: queue.Queue[bytes] = queue.Queue()
        connected = queue.Queue[bool]()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.on_connect = lambda *_: self.client.subscribe(f"{BASE}/mallory/down/control", qos=1)
        self.client.on_subscribe = lambda *_: connected.put(True)
        self.client.on_message = lambda _c, _u, message: self.inbox.put(message.payload)
        self.client.connect(address.host, address.port)
        self.client.loop_start()
        connected.get(timeout=DEADLINE_S)

    def send(self, payload: bytes, topic: str = "mallory/up/control", *, retain: bool = False) -> None:
        self.client.publish(f"{BASE}/{topic}", payload, qos=1, retain=retain).wait_for_publish(DEADLINE_S)

    def expect(self, kind: type) -> object:
        """The next message of this kind."""
        while True:
            message = messages.decode_message(self.inbox.get(timeout=DEADLINE_S))
            if isinstance(message, kind):
                return message

    def refuse_probe(self) -> None:
        """Answer that the blob which the server requests from new devices is unknown."""
        request = self.expect(messages.BlobRequest)
        assert isinstance(request, messages.BlobRequest)
        answer = messages.Refusal(
            federation="test", device=request.device, reason=Reason.UNKNOWN_BLOB, digest=request.digest
        )
        self.send(messages.encode_message(answer))

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def rogue(address: BrokerAddress) -> Iterator[Rogue]:
    client = Rogue(address)
    yield client
    client.close()


def reply(**changes: object) -> messages.TaskReply:
    fields = {
        "federation": "test",
        "device": "mallory",
        "run": "run-1",
        "round": 1,
        "attempt": 1,
        "accepted": True,
    }
    return messages.TaskReply(**{**fields, **changes})


MALFORMED = (
    (b"\xff\xfe", "mallory/up/control", "malformed"),
    (b"[1, 2", "mallory/up/control", "malformed"),
    (b"[" * 20_000, "mallory/up/control", "malformed"),
    (b'{"kind": "gossip"}', "mallory/up/control", "unknown-kind"),
    (b'{"kind": "birth", "protocol": 99}', "mallory/up/birth", "unsupported-protocol"),
    (b'{"kind": "task-reply", "detail": "' + b"x" * 100_000 + b'"}', "mallory/up/control", "oversized"),
    (messages.encode_message(reply(federation="other")), "mallory/up/control", "wrong-federation"),
    (messages.encode_message(reply(device="eve")), "mallory/up/control", "wrong-sender"),
    (
        messages.encode_message(
            messages.Acknowledgement(federation="test", device="mallory", run="run-1", attempt=1)
        ),
        "mallory/up/control",
        "unknown-kind",
    ),
    (b"not a chunk, whatever it says", "mallory/up/blob", "malformed"),
)


def test_malformed_messages_are_refused_with_the_reason(serve: Serve, rogue: Rogue) -> None:
    run = serve(demo_config())
    run.watched.until(lambda now: not now.no_link)
    expected = Counter[str]()
    for payload, topic, reason in MALFORMED:
        rogue.send(payload, topic)
        refusal = rogue.expect(messages.Refusal)
        assert isinstance(refusal, messages.Refusal)
        assert refusal.reason == reason, payload[:80]
        expected[reason] += 1
        counted = run.server.reporter.counters.refusals["mallory", reason]
        assert counted == expected[reason], payload[:80]


def test_bad_updates_are_refused_and_the_round_continues_without_them(
    serve: Serve, rogue: Rogue, address: BrokerAddress, tmp_path: Path
) -> None:
    """Mallory is selected like the other devices and sends a single parameter of NaNs."""
    words = {"clients.num-clients": 2, "start-clients": 3, "deliver": "none", "strategy.uplink": []}
    words["strategy.pruner"] = "index"
    config = demo_config(rounds=1, **words)
    rogue.send(
        messages.encode_message(messages.Birth(federation="test", device="mallory", session=1, data=CARD)),
        "mallory/up/birth",
        retain=True,
    )
    with devices(config, address, tmp_path / "devices"):
        run = serve(config)
        rogue.refuse_probe()
        task = rogue.expect(messages.Task)
        assert isinstance(task, messages.Task)
        data = nan_blob()
        blob = BlobRef(digest=digest_of(data), size=len(data))
        about = fields_of(task, "run", "round", "attempt")
        update = plain_update("mallory", federation="test", blob=blob, **about)
        rogue.send(messages.encode_message(update))
        rogue.send(encode_chunk(blob.digest, 0, data), "mallory/up/blob")
        refusal = rogue.expect(messages.Refusal)
        assert isinstance(refusal, messages.Refusal)
        assert refusal.reason == "wrong-shape"
        gone = messages.Death(federation="test", device="mallory", session=1)
        rogue.send(messages.encode_message(gone), "mallory/up/birth")
        summary = run.finished()
    record = run.server.reporter.counters.history[0]
    assert summary.outcome == "finished"
    assert len(record.completed) == 2
    (refused,) = record.rejected
    assert (refused.device, refused.reason, refused.early) == ("mallory", "wrong-shape", True)
    assert refused.detail


def nan_blob() -> bytes:
    weights = np.full((32, 1, 5, 5), np.nan, dtype=np.float32)
    return encode_groups({"model": {"conv1.weight": weights}})
