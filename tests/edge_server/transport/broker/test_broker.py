"""Timing of the embedded broker, with a manual clock and connections that only record packets."""

import pytest

from edge_server.transport.broker import packets
from edge_server.transport.broker.broker import Broker
from edge_server.transport.broker.properties import Prop, Property, number
from edge_server.transport.broker.session import Limits, Session
from edge_server.transport.broker.wire import Code, MqttError

from .test_packets import decode_frame


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeLink:
    def __init__(self, broker: Broker) -> None:
        self.peer = "fake"
        self.version = 0
        self.accepted = False
        self.session: Session | None = None
        self.opened_at = self.heard_at = broker.clock()
        self.patience_s = float("inf")
        self.largest_packet = 1 << 28
        self.dropped = 0
        self.has_room = True
        self.sent: list[packets.Packet] = []
        self.ended: Code | None = None

    def send(self, head: bytes, payload: memoryview | None = None) -> None:
        self.sent.append(decode_frame(head + (payload or b""), self.version))

    def close(self, code: Code) -> None:
        self.ended = code

    @property
    def messages(self) -> list[bytes]:
        return [bytes(packet.payload) for packet in self.sent if isinstance(packet, packets.Publish)]


class Scene:
    """A broker, its clock and its clients."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = Clock()
        self.broker = Broker(limits or Limits(), self.clock)

    def join(self, client_id: str, *filters: str, **more: object) -> FakeLink:
        link = FakeLink(self.broker)
        assert self.broker.admit_link(link)
        settings: dict[str, object] = {"version": packets.V5, **more}
        self.broker.on_packet(link, packets.Connect(client_id=client_id, **settings))  # type: ignore[arg-type]
        if filters:
            self.broker.on_packet(
                link, packets.Subscribe(1, tuple(packets.Filter(topic_filter, 1) for topic_filter in filters))
            )
        return link

    def publish(self, topic: str, payload: bytes, qos: int = 1, **more: object) -> None:
        link = self.join("", clean_start=True)
        self.broker.on_packet(link, packets.Publish(topic, payload, qos, packet_id=qos, **more))  # type: ignore[arg-type]
        self.broker.on_closed(link)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.broker.tick()


def lasting(seconds: int) -> dict[str, object]:
    return {"clean_start": False, "properties": (Property(Prop.SESSION_EXPIRY, seconds),)}


def offline_after(delay_s: int) -> packets.Will:
    return packets.Will("state", b"offline", qos=1, properties=(Property(Prop.WILL_DELAY, delay_s),))


@pytest.mark.parametrize(
    ("delay_s", "expiry_s", "due_s"),
    # The will is published after its delay, but not later than the end of the session.
    [(0, 60, 0), (10, 60, 10), (60, 10, 10), (10, 0, 0)],
)
def test_a_will_is_published_when_it_is_due(delay_s: int, expiry_s: int, due_s: int) -> None:
    scene = Scene()
    watcher = scene.join("watcher", "state")
    scene.broker.on_closed(scene.join("device", will=offline_after(delay_s), **lasting(expiry_s)))
    if due_s:
        scene.pass_time(due_s - 1)
        assert watcher.messages == []
        scene.pass_time(1)
    assert watcher.messages == [b"offline"]
    scene.pass_time(1000)
    assert watcher.messages == [b"offline"]


def test_a_clean_start_ends_the_old_session_and_publishes_its_delayed_will() -> None:
    scene = Scene()
    watcher = scene.join("watcher", "state")
    scene.join("device", will=offline_after(30), **lasting(60))
    scene.join("device", clean_start=True)
    assert watcher.messages == [b"offline"]


def test_a_session_and_its_subscriptions_end_after_its_expiry() -> None:
    scene = Scene()
    scene.broker.on_closed(scene.join("device", "t", **lasting(10)))
    scene.pass_time(9)
    scene.publish("t", b"kept")
    back = scene.join("device", **lasting(10))
    assert back.messages == [b"kept"]
    scene.broker.on_closed(back)
    scene.pass_time(10)
    scene.publish("t", b"missed")
    assert scene.join("device", **lasting(10)).messages == []


def test_the_broker_limits_the_session_expiry() -> None:
    link = Scene(Limits(session_seconds=100)).join("device", **lasting(0xFFFF_FFFF))
    [answer] = link.sent
    assert number(getattr(answer, "properties", ()), Prop.SESSION_EXPIRY, 0) == 100


def test_a_disconnect_can_change_the_expiry() -> None:
    scene = Scene()
    link = scene.join("device", "t", **lasting(60))
    scene.broker.on_packet(link, packets.Disconnect(properties=(Property(Prop.SESSION_EXPIRY, 0),)))
    scene.publish("t", b"missed")
    assert scene.join("device", **lasting(60)).messages == []


def test_an_expired_message_is_not_delivered_and_not_retained() -> None:
    scene = Scene()
    scene.broker.on_closed(scene.join("device", "t", **lasting(100)))
    for life_s in (5, 50):
        block = (Property(Prop.MESSAGE_EXPIRY, life_s),)
        scene.publish("t", b"%d" % life_s, properties=block)
        scene.publish(f"kept/{life_s}", b"%d" % life_s, retain=True, properties=block)
    scene.pass_time(20)
    link = scene.join("device", **lasting(100))
    assert link.messages == [b"50"]
    [message] = [packet for packet in link.sent if isinstance(packet, packets.Publish)]
    assert number(message.properties, Prop.MESSAGE_EXPIRY, 0) == 30
    assert scene.join("late", "kept/#").messages == [b"50"]


def test_a_client_is_dead_after_one_and_a_half_keep_alives() -> None:
    scene = Scene()
    link = scene.join("device", keep_alive=10)
    scene.pass_time(15)
    assert link.ended is None
    scene.pass_time(1)
    assert link.ended is Code.KEEP_ALIVE_TIMEOUT


def test_a_connection_without_a_connect_packet_is_ended() -> None:
    scene = Scene(Limits(connect_seconds=10))
    link = FakeLink(scene.broker)
    scene.broker.admit_link(link)
    scene.pass_time(10)
    assert link.ended is None
    scene.pass_time(1)
    assert link.ended is Code.PROTOCOL_ERROR


def test_the_window_moves_by_one_for_each_acknowledgment() -> None:
    scene = Scene()
    link = scene.join("device", "t", properties=(Property(Prop.RECEIVE_MAXIMUM, 2),))
    for letter in (b"a", b"b", b"c", b"d"):
        scene.publish("t", letter)
    assert link.messages == [b"a", b"b"]
    scene.broker.on_packet(link, packets.PubAck(1))
    assert link.messages == [b"a", b"b", b"c"]
    # An acknowledgment of an unknown identifier changes nothing.
    scene.broker.on_packet(link, packets.PubAck(999))
    assert link.messages == [b"a", b"b", b"c"]


def test_unacknowledged_messages_are_resent_before_queued_ones() -> None:
    scene = Scene(Limits(inflight=2))
    link = scene.join("device", "t", **lasting(60))
    for letter in (b"a", b"b", b"c"):
        scene.publish("t", letter)
    scene.broker.on_packet(link, packets.PubAck(1))
    assert link.messages == [b"a", b"b", b"c"]
    scene.broker.on_closed(link)
    back = scene.join("device", **lasting(60))
    again = [packet for packet in back.sent if isinstance(packet, packets.Publish)]
    assert [(packet.payload, packet.dup, packet.packet_id) for packet in again] == [
        (b"b", True, 2),
        (b"c", True, 3),
    ]


def test_resent_messages_respect_the_new_window() -> None:
    scene = Scene()
    link = scene.join("device", "t", **lasting(60))
    for letter in (b"a", b"b", b"c"):
        scene.publish("t", letter)
    scene.broker.on_closed(link)
    narrow = (Property(Prop.SESSION_EXPIRY, 60), Property(Prop.RECEIVE_MAXIMUM, 1))
    back = scene.join("device", clean_start=False, properties=narrow)
    assert back.messages == [b"a"]
    scene.broker.on_packet(back, packets.PubAck(1))
    assert back.messages == [b"a", b"b"]


def test_a_full_output_drops_qos_0_and_keeps_qos_1_waiting() -> None:
    scene = Scene()
    link = scene.join("device", "t")
    link.has_room = False
    scene.publish("t", b"zero", qos=0)
    scene.publish("t", b"one", qos=1)
    assert link.messages == []
    link.has_room = True
    scene.broker.writable(link)
    assert link.messages == [b"one"]
    assert link.dropped == 1


@pytest.mark.parametrize("limits", [Limits(queue_messages=3), Limits(queue_bytes=6)], ids=["count", "bytes"])
def test_a_full_queue_keeps_the_oldest(limits: Limits) -> None:
    scene = Scene(limits)
    scene.broker.on_closed(scene.join("device", "t", **lasting(60)))
    # A message on "t" of one byte costs two.
    for letter in (b"a", b"b", b"c", b"d"):
        scene.publish("t", letter)
    assert scene.join("device", **lasting(60)).messages == [b"a", b"b", b"c"]


@pytest.mark.parametrize("limits", [Limits(retained_messages=1), Limits(retained_bytes=2)])
def test_a_message_that_cannot_be_retained_is_delivered_and_reported(limits: Limits) -> None:
    scene = Scene(limits)
    link = scene.join("device", "+")
    scene.broker.on_packet(link, packets.Publish("a", b"1", 1, True, packet_id=1))
    scene.broker.on_packet(link, packets.Publish("b", b"2", 1, True, packet_id=2))
    assert [p.code for p in link.sent if isinstance(p, packets.PubAck)] == [Code.SUCCESS, Code.QUOTA_EXCEEDED]
    assert link.messages == [b"1", b"2"]
    assert scene.join("late", "+").messages == [b"1"]
    scene.publish("a", b"", retain=True)
    scene.publish("b", b"2", retain=True)
    assert scene.join("later", "+").messages == [b"2"]


def test_overlapping_filters_deliver_once() -> None:
    scene = Scene()
    link = scene.join("device", "a/+", "a/b", "#")
    scene.publish("a/b", b"m")
    assert link.messages == [b"m"]


def test_each_subscription_has_its_own_code() -> None:
    scene = Scene(Limits(subscriptions=2))
    filters_sent = (
        packets.Filter("a", 2),
        packets.Filter("a/#/b"),
        packets.Filter("$share/g/a"),
        packets.Filter("b", 0),
        packets.Filter("c"),
        packets.Filter("a", 1),
    )
    for version, expected in (
        (packets.V5, (1, Code.BAD_FILTER, 0, Code.QUOTA_EXCEEDED, Code.QUOTA_EXCEEDED, 1)),
        (packets.V311, (1, 0x80, 0x80, 0, 0x80, 1)),
    ):
        link = scene.join(f"device-{version}", version=version)
        scene.broker.on_packet(link, packets.Subscribe(1, filters_sent))
        assert getattr(link.sent[-1], "codes", None) == expected


def test_a_shared_subscription_is_served_in_turn_and_skips_absent_clients() -> None:
    scene = Scene()
    first, second, other = (scene.join(name, f"$share/{group}/a/+") for name, group in ("1g", "2g", "3h"))
    for payload in (b"1", b"2", b"3"):
        scene.publish("a/b", payload)
    # Each group receives every message once: the two clients of g share them, the client of h gets all.
    assert (first.messages, second.messages) == ([b"1", b"3"], [b"2"])
    assert other.messages == [b"1", b"2", b"3"]
    scene.broker.on_closed(second)
    for payload in (b"4", b"5"):
        scene.publish("a/b", payload)
    assert first.messages == [b"1", b"3", b"4", b"5"]


def test_a_shared_subscription_receives_no_retained_messages() -> None:
    scene = Scene()
    scene.publish("a/b", b"m", retain=True)
    assert scene.join("device", "$share/g/a/+").messages == []


@pytest.mark.parametrize(
    ("connect", "code"),
    [
        (packets.Connect(packets.V311, "", clean_start=False), Code.BAD_CLIENT_ID),
        (packets.Connect(packets.V5, "a", will=packets.Will("w", b"", qos=2)), Code.QOS_NOT_SUPPORTED),
        (
            packets.Connect(packets.V5, "a", properties=(Property(Prop.AUTHENTICATION_METHOD, "x"),)),
            Code.BAD_AUTHENTICATION,
        ),
        (packets.PingReq(), Code.PROTOCOL_ERROR),
    ],
)
def test_an_unsupported_first_packet_is_refused(connect: packets.Packet, code: Code) -> None:
    scene = Scene()
    link = FakeLink(scene.broker)
    with pytest.raises(MqttError) as refused:
        scene.broker.on_packet(link, connect)
    assert refused.value.code is code


@pytest.mark.parametrize(
    "packet",
    [
        packets.Connect(packets.V5, "device"),
        packets.Subscribe(1, (packets.Filter("a"),), (Property(Prop.SUBSCRIPTION_ID, 1),)),
        packets.Publish("a", b"", properties=(Property(Prop.SUBSCRIPTION_ID, 1),)),
        packets.Disconnect(properties=(Property(Prop.SESSION_EXPIRY, 5),)),
    ],
)
def test_a_packet_that_a_client_may_not_send_is_refused(packet: packets.Packet) -> None:
    scene = Scene()
    link = scene.join("device")
    with pytest.raises(MqttError):
        scene.broker.on_packet(link, packet)


def test_sessions_are_bounded() -> None:
    scene = Scene(Limits(sessions=1))
    scene.broker.on_closed(scene.join("one", **lasting(60)))
    with pytest.raises(MqttError) as refused:
        scene.join("two")
    assert refused.value.code is Code.QUOTA_EXCEEDED
    scene.join("one", **lasting(60))
