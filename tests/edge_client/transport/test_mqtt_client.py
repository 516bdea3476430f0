"""The connection to the broker, tested with real brokers."""

import contextlib
import queue
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest

from edge_client.transport import mqtt_client as module
from edge_client.transport import paho_client
from edge_client.transport.broker_link import Arrived, BrokerAddress, Confirmed, LinkDown, LinkUp
from edge_client.transport.message_parts import MAX_IN_FLIGHT
from edge_client.transport.mqtt_client import Link
from edge_server.transport.broker.launch import RunningBroker, find_mosquitto, free_port, running_broker

DEADLINE_S = 20.0
CLEAN = 0x02  # The flag of a CONNECT that begins a clean session


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(module, "LONGEST_DELAY_S", 0.2)


@pytest.fixture(scope="module", params=["embedded", "mosquitto"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "mosquitto" and find_mosquitto() is None:
        pytest.skip("no mosquitto binary on this machine")
    return str(request.param)


@pytest.fixture(scope="module")
def broker(kind: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(kind, tmp_path_factory.mktemp(kind)) as running:
        yield running


class Owner:
    """A link with its inbox, as in an agent; `next` handles every event."""

    def __init__(self, where: int | BrokerAddress, **more: Any) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.name = f"t{uuid.uuid4().hex[:12]}"
        more.setdefault("filters", ())
        address = where if isinstance(where, BrokerAddress) else BrokerAddress("127.0.0.1", where)
        self.link = Link(address, self.inbox, client_id=self.name, **more)

    def next(self, kind: type, **fields: Any) -> Any:
        """Handle events until one of this kind and with these fields arrives, and return it."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            event = self.inbox.get(timeout=max(0.0, deadline - time.monotonic()))
            self.link.handle(event)
            if isinstance(event, kind) and all(getattr(event, n) == v for n, v in fields.items()):
                return event

    def cut(self) -> None:
        """Cut the connection, as a power cut does."""
        raw = self.link.client.socket()
        assert raw is not None
        raw.shutdown(socket.SHUT_RDWR)


Make = Callable[..., Owner]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Owner] = []

    def open_owner(port: int, **more: Any) -> Owner:
        made.append(Owner(port, **more))
        made[-1].link.open()
        return made[-1]

    yield open_owner
    for owner in made:
        owner.link.close()


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def wait_until_subscribed(owner: Owner, topic: str) -> None:
    """Return once the owner receives messages on `topic`."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        owner.link.publish(topic, b"ping")
        with contextlib.suppress(queue.Empty):
            while not isinstance(event := owner.inbox.get(timeout=0.2), Arrived):
                owner.link.handle(event)
            return
    raise AssertionError(f"nothing arrives on {topic}")


def test_connecting_reports_the_brokers_largest_packet(broker: RunningBroker, make: Make) -> None:
    up = make(broker.port, first_session=41).next(LinkUp)
    assert up.session == 41
    assert up.max_packet is not None
    assert up.max_packet >= 512 * 1024


def test_messages_arrive_on_every_filter(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    reader = make(broker.port, filters=(f"{topic}/a/#", f"{topic}/b"))
    reader.next(LinkUp)
    wait_until_subscribed(reader, f"{topic}/b")
    writer = make(broker.port)
    writer.next(LinkUp)
    writer.link.publish(f"{topic}/a/deep", b"one")
    assert reader.next(Arrived, topic=f"{topic}/a/deep").payload == b"one"
    writer.link.publish(f"{topic}/b", b"\x00\xff" * 1000)
    assert reader.next(Arrived, payload=b"\x00\xff" * 1000).topic == f"{topic}/b"


def test_a_retained_message_is_delivered_to_later_subscribers(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    writer = make(broker.port)
    writer.next(LinkUp)
    writer.link.publish(topic, b"state", retain=True)
    writer.next(Confirmed)
    assert make(broker.port, filters=(topic,)).next(Arrived).payload == b"state"


def test_a_message_larger_than_a_packet_arrives_complete(broker: RunningBroker, make: Make) -> None:
    topic, payload = f"t/{uuid.uuid4().hex}", b"{" + bytes(200_000)
    reader = make(broker.port, filters=(topic,))
    reader.next(LinkUp)
    wait_until_subscribed(reader, topic)
    writer = make(broker.port)
    writer.link.fit(15 * 1024)
    writer.next(LinkUp)
    writer.link.publish(topic, payload)
    while (got := reader.next(Arrived).payload) == b"ping":
        pass
    assert got == payload


def test_a_message_published_offline_is_sent_after_connecting(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    owner = Owner(broker.port)
    owner.link.publish(topic, b"early", retain=True)
    owner.link.open()
    owner.next(Confirmed)
    owner.link.close()
    assert make(broker.port, filters=(topic,)).next(Arrived).payload == b"early"


def test_a_lost_connection_triggers_the_will_of_its_session(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    watcher = make(broker.port, filters=(topic,))
    watcher.next(LinkUp)
    wait_until_subscribed(watcher, topic)
    owner = make(broker.port, will=lambda session: (topic, b"%d gone" % session), first_session=7)
    last = 6
    for _ in range(3):
        session = owner.next(LinkUp).session
        assert session > last
        owner.cut()
        assert owner.next(LinkDown).downgrade is False
        assert watcher.next(Arrived, payload=b"%d gone" % session).topic == topic
        last = session


def test_a_clean_disconnect_sends_no_will(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    watcher = make(broker.port, filters=(topic,))
    watcher.next(LinkUp)
    wait_until_subscribed(watcher, topic)
    owner = make(broker.port, will=lambda session: (topic, b"gone"))
    owner.next(LinkUp)
    owner.link.publish(topic, b"goodbye")
    owner.next(Confirmed)
    owner.link.close()
    watcher.link.publish(topic, b"after")
    assert watcher.next(Arrived, payload=b"goodbye")
    while (event := watcher.next(Arrived)).payload != b"after":
        assert event.payload == b"ping"


def test_more_chunks_than_may_be_in_flight_arrive_in_order(broker: RunningBroker, make: Make) -> None:
    topic, count = f"t/{uuid.uuid4().hex}", 5 * MAX_IN_FLIGHT
    reader = make(broker.port, filters=(topic,))
    reader.next(LinkUp)
    wait_until_subscribed(reader, topic)
    writer = make(broker.port)
    writer.next(LinkUp)
    read: list[int] = []

    def frame(index: int) -> bytes:
        read.append(index)
        return b"%03d" % index + bytes(20_000)

    for index in range(count):
        writer.link.send_chunk(index, topic, lambda index=index: frame(index))
    # Only the chunks that may be in flight have been read from disk; the others wait.
    assert len(read) == MAX_IN_FLIGHT
    for confirmed in range(1, count + 1):
        writer.next(Confirmed)
        assert len(read) - confirmed <= MAX_IN_FLIGHT
    assert read == list(range(count))
    got: list[int] = []
    while len(got) < count:
        payload = reader.next(Arrived).payload
        got += [int(payload[:3])] if payload != b"ping" else []
    assert got == list(range(count))


def test_a_waiting_chunk_is_not_queued_again(broker: RunningBroker, make: Make) -> None:
    owner = Owner(broker.port)
    read: list[int] = []

    def frame(index: int) -> bytes:
        read.append(index)
        return b"frame"

    for index in [0, 1, 0, 1, 1]:
        owner.link.send_chunk(index, "t/chunks", lambda index=index: frame(index))
    assert read == []
    owner.link.open()
    owner.next(LinkUp)
    assert read == [0, 1]
    owner.link.close()


def test_a_chunk_that_cannot_be_read_does_not_stop_the_others(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    owner = make(broker.port, filters=(topic,))
    owner.next(LinkUp)
    wait_until_subscribed(owner, topic)

    def gone() -> bytes:
        raise FileNotFoundError("gone")

    owner.link.send_chunk("a", topic, gone)
    owner.link.send_chunk("b", topic, lambda: b"there")
    assert owner.next(Arrived, payload=b"there")


def test_chunks_are_sent_after_a_lost_connection(broker: RunningBroker, make: Make) -> None:
    owner = make(broker.port)
    owner.next(LinkUp)
    owner.cut()
    owner.next(LinkDown)
    read: list[int] = []
    for index in range(40):
        owner.link.send_chunk(index, "t/chunks", lambda index=index: read.append(index) or b"frame")
    while len(read) < 40:
        owner.next((LinkUp, Confirmed))  # type: ignore[arg-type]
    assert sorted(read) == list(range(40))


def test_a_link_reconnects_and_resubscribes_after_a_broker_restart(
    kind: Any, tmp_path: Path, make: Make
) -> None:
    port, topic = free_port(), f"t/{uuid.uuid4().hex}"
    with running_broker(kind, tmp_path / "one", port=port):
        owner = make(port, filters=(topic,))
        first = owner.next(LinkUp).session
    owner.next(LinkDown)
    with running_broker(kind, tmp_path / "two", port=port):
        assert owner.next(LinkUp).session > first
        wait_until_subscribed(owner, topic)


def test_without_a_broker_each_failure_is_reported_and_closing_is_immediate(make: Make) -> None:
    owner = make(free_port())
    for _ in range(3):
        assert owner.next(LinkDown).reason.startswith("the broker cannot be reached: [Errno 111]")
    began = time.monotonic()
    owner.link.close()
    # paho wakes at least once a second.
    assert time.monotonic() - began < 2.0


def test_a_link_that_was_never_opened_can_be_closed() -> None:
    Owner(free_port()).link.close()


class OldBroker:
    """A broker with MQTT 3.1.1 only; a CONNECT of version 5 gets `refusal`, or no answer if that is empty.

    Without a `refusal` it hangs up.
    """

    def __init__(self, refusal: bytes | None) -> None:
        self.levels: list[int] = []
        self.connects: list[bytes] = []
        self._refusal = refusal
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError, IndexError):
            # Fixed header (2 bytes, the CONNECT is short), "\0\4MQTT", then the protocol level.
            self.connects.append(client.recv(4096))
            level = self.connects[-1][8]
            self.levels.append(level)
            if level == 5 and self._refusal != b"":
                client.sendall(self._refusal or b"")
                return
            while level == 5:
                level -= len(client.recv(4096)) == 0
            client.sendall(b"\x20\x02\x00\x00")
            while client.recv(4096):
                pass

    def close(self) -> None:
        # close() alone does not end a waiting accept().
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.mark.parametrize(
    "refusal",
    [b"\x20\x03\x00\x84\x00", b"\x20\x02\x00\x01"],
    ids=["version 5 format", "version 3.1.1 format"],
)
def test_a_broker_without_version_5_causes_a_fallback_to_3_1_1(refusal: bytes, make: Make) -> None:
    old = OldBroker(refusal)
    try:
        owner = make(old.port)
        assert owner.next(LinkDown, downgrade=True).reason.startswith("the broker refused")
        up = owner.next(LinkUp)
        assert up.max_packet is None
        assert (old.levels[0], old.levels[-1]) == (5, 4)
    finally:
        old.close()


def test_a_broker_that_never_answers_version_5_causes_a_fallback_to_3_1_1(make: Make, monkeypatch) -> None:
    """So does amqtt 0.12.1 where the CONNECT has properties."""
    monkeypatch.setattr(paho_client, "KEEPALIVE_S", 1)
    mute = OldBroker(b"")
    try:
        owner = make(mute.port)
        assert owner.next(LinkDown, downgrade=True).reason == "it does not answer MQTT 5: trying 3.1.1"
        owner.next(LinkUp)
        assert mute.levels == [5, 4]
    finally:
        mute.close()


def test_a_broker_that_hangs_up_on_version_5_causes_a_fallback_to_3_1_1(make: Make) -> None:
    """So does rumqttd at its listeners for WebSockets and for 3.1.1."""
    rude = OldBroker(None)
    try:
        owner = make(rude.port)
        assert owner.next(LinkDown, downgrade=True).reason == "it does not answer MQTT 5: trying 3.1.1"
        owner.next(LinkUp)
        assert rude.levels == [5] * module.MAX_QUICK + [4]
    finally:
        rude.close()


def test_a_broker_that_hangs_up_on_every_version_is_tried_in_turns_and_seldom(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy whose broker is about to start does so: mostly version 5 is tried."""
    monkeypatch.setattr(OldBroker, "_talk", lambda self, client: self.levels.append(_hang_up(client)))
    gone = OldBroker(None)
    try:
        owner = make(gone.port)
        for _ in range(2):
            owner.next(LinkDown, downgrade=True)
        wait_for(lambda: len(gone.levels) >= 2 * (module.MAX_QUICK + 1))
        assert gone.levels[:8] == [5, 5, 5, 4, 5, 5, 5, 4]
        delays = owner.link.client._reconnect_min_delay, owner.link.client._reconnect_max_delay
        assert delays == (owner.link.longest_delay_s,) * 2
    finally:
        gone.close()


def _hang_up(client: socket.socket) -> int:
    with client:
        return client.recv(4096)[8]


def test_every_connection_begins_a_clean_session(broker: RunningBroker, make: Make) -> None:
    """None is kept on the broker, and a resumed one would bring back what the client has dropped."""
    deaf = OldBroker(b"\x20\x03\x00\x00\x00")
    try:
        make(deaf.port)
        wait_for(lambda: len(deaf.connects) > 1)
        assert [bool(connect[9] & CLEAN) for connect in deaf.connects[:2]] == [True, True]
    finally:
        deaf.close()


def test_version_3_1_1_is_left_again_if_it_gets_no_answer_either(make: Make) -> None:
    old = OldBroker(b"\x20\x03\x00\x84\x00")
    try:
        owner = make(old.port)
        owner.next(LinkUp)
        owner.link.handle(LinkDown("", silent=True))
        owner.next(LinkDown, downgrade=True)
        assert 5 in old.levels[2:]
    finally:
        old.close()


def test_the_earlier_of_two_clients_of_one_name_is_told(broker: RunningBroker, make: Make) -> None:
    """Mosquitto 2.0.11 closes its connection without a reason."""
    first, second = make(broker.port), Owner(broker.port)
    first.next(LinkUp)
    second.link.client_id = first.name
    second.link.client = second.link.prepare_client()
    second.link.open()
    try:
        assert "another client has come with this name" in first.next(LinkDown, taken_over=True).reason
    finally:
        second.link.close()


def test_a_broker_that_hangs_up_on_each_large_packet_does_not_look_like_a_second_client(
    broker: RunningBroker, make: Make
) -> None:
    owner = make(broker.port)
    for _ in range(module.MAX_QUICK):
        owner.next(LinkUp)
        owner.link.echo("t/echo", b"large")
        owner.cut()
        assert not owner.next(LinkDown).taken_over


def test_a_failed_attempt_between_the_losses_is_another_cause(broker: RunningBroker, make: Make) -> None:
    owner = make(broker.port)
    for _ in range(module.MAX_QUICK):
        owner.next(LinkUp)
        owner.link.client.on_connect_fail(owner.link.client, None)
        assert owner.next(LinkDown).reason.startswith("the broker cannot be reached")
        owner.cut()
        assert not owner.next(LinkDown).taken_over


def test_evidence_is_subscribed_to_once_a_second_client_is_likely(broker: RunningBroker, make: Make) -> None:
    topic = f"t/{uuid.uuid4().hex}"
    owner = make(broker.port, evidence=[topic])
    for _ in range(module.MAX_QUICK - 1):
        owner.next(LinkUp)
        owner.cut()
        owner.next(LinkDown, taken_over=False)
    owner.next(LinkUp)
    wait_until_subscribed(owner, topic)


def test_two_refusals_cause_one_fallback(make: Make) -> None:
    # paho retries until its owner handles the first refusal, so the inbox may contain two.
    old = OldBroker(b"\x20\x03\x00\x84\x00")
    try:
        owner = make(old.port)
        owner.next(LinkDown, downgrade=True)
        owner.next(LinkUp)
        before: mqtt.Client = owner.link.client
        owner.link.handle(LinkDown("the broker refused", downgrade=True))
        assert owner.link.client is before
    finally:
        old.close()


def test_the_last_messages_arrive_before_a_clean_disconnect(broker: RunningBroker, make: Make) -> None:
    """Unread input makes a closing socket send a reset; the test repeats because the outcome is a race."""
    base = f"last/{uuid.uuid4().hex}"
    reader = make(broker.port, filters=[f"{base}/all"])
    reader.next(LinkUp)
    wait_until_subscribed(reader, f"{base}/all")
    for turn in range(30):
        writer = make(broker.port, filters=[f"{base}/answers"])
        writer.next(LinkUp)
        for word in ("begin", "go on"):
            writer.link.publish(f"{base}/all", f"{word} {turn}".encode(), retain=True)
        reader.link.publish(f"{base}/answers", b"answer")
        for word in ("closing", "end"):
            writer.link.publish(f"{base}/all", f"{word} {turn}".encode(), retain=True)
        writer.link.close()
        reader.next(Arrived, payload=f"end {turn}".encode())
