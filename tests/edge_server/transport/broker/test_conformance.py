"""Behaviour that the project relies on, tested with the embedded broker and Mosquitto in MQTT 3.1.1 and 5."""

from collections.abc import Callable
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_server.transport.broker.packets import V5, Disconnect, Filter, PubAck, Publish, Will
from edge_server.transport.broker.properties import Prop, Property, number
from edge_server.transport.broker.wire import Code

from .clients import Paho, Raw, with_properties

MakePaho = Callable[..., Paho]
MakeRaw = Callable[[], Raw]

CHUNK = 64 * 1024
only_5 = pytest.mark.parametrize("version", [V5], ids=["5"])


def numbered(count: int, size: int = 4) -> list[bytes]:
    """Return payloads that begin with their index."""
    return [i.to_bytes(4, "big") + bytes(size - 4) for i in range(count)]


# --- shared subscriptions ---


@only_5
def test_one_client_of_a_sharing_group_receives_each_message(paho: MakePaho, name: str) -> None:
    members, sender = [paho(), paho()], paho()
    for member in members:
        member.subscribe(f"$share/group/{name}/+")
    sent = numbered(20)
    for payload in sent:
        sender.publish(f"{name}/x", payload)
    assert sorted(members[0].payloads(10) + members[1].payloads(10)) == sent


# --- QoS 1 ---


def test_unacknowledged_messages_are_resent_in_order_with_dup(paho: MakePaho, name: str) -> None:
    device = paho(f"{name}-d", clean=False, manual_ack=True)
    device.subscribe(name)
    sender, sent = paho(), numbered(8, CHUNK)
    for payload in sent:
        sender.publish(name, payload)
    first = device.take(8)
    assert [m.payload for m in first] == sent
    assert not any(m.dup for m in first)
    device.client.ack(first[0].mid, 1)
    device.cut()
    again = paho(f"{name}-d", clean=False)
    # The single acknowledgment may have been lost with the socket.
    received = again.take(7)
    assert all(m.dup for m in received)
    if received[0].payload == sent[0]:
        received = [*received[1:], *again.take()]
    assert [m.payload for m in received] == sent[1:]


def test_many_large_messages_arrive_in_order(paho: MakePaho, name: str) -> None:
    device, sender, sent = paho(), paho(), numbered(400, CHUNK)
    device.subscribe(f"{name}/+")
    for payload in sent:
        sender.client.publish(f"{name}/x", payload, 1)
    assert device.payloads(400) == sent


def test_a_message_arrives_at_the_lower_of_the_two_qos(paho: MakePaho, name: str) -> None:
    at_0, at_1, sender = paho(), paho(), paho()
    assert at_0.subscribe(name, 0) == 0
    assert at_1.subscribe(name, 1) == 1
    sender.publish(name, b"one", 1)
    sender.publish(name, b"zero", 0)
    assert [m.qos for m in at_0.take(2)] == [0, 0]
    assert sorted(m.qos for m in at_1.take(2)) == [0, 1]


@only_5
def test_the_receive_window_of_a_client_is_respected(raw: MakeRaw, paho: MakePaho, name: str) -> None:
    device, sender = raw(), paho()
    device.join(name, properties=(Property(Prop.RECEIVE_MAXIMUM, 2),))
    device.subscribe(Filter(name, 1))
    for payload in numbered(4):
        sender.publish(name, payload)
    waiting = device.until_ping()
    assert [p.payload for p in waiting if isinstance(p, Publish)] == numbered(4)[:2]
    first = waiting[0]
    assert isinstance(first, Publish)
    device.send(PubAck(first.packet_id))
    third = device.receive()
    assert isinstance(third, Publish)
    assert third.payload == numbered(4)[2]


def test_overlapping_filters_deliver_at_the_highest_qos(paho: MakePaho, name: str) -> None:
    device = paho()
    device.subscribe(f"{name}/+", 0)
    device.subscribe(f"{name}/a", 1)
    device.subscribe(f"{name}/end", 1)
    sender = paho()
    sender.publish(f"{name}/a", b"m")
    sender.publish(f"{name}/end", b"end")
    received = device.take(2)
    if received[1].topic != f"{name}/end":
        # Mosquitto delivers to an MQTT 5 client once per filter, which the standard allows too.
        device.take()
        received.pop()
    assert 1 in [m.qos for m in received if m.payload == b"m"]


# --- retained messages ---


def test_a_retained_message_is_delivered_until_it_is_cleared(paho: MakePaho, name: str) -> None:
    sender = paho()
    sender.publish(f"{name}/a", b"old", retain=True)
    sender.publish(f"{name}/a", b"new", retain=True)
    early = paho()
    early.subscribe(f"{name}/a")
    [message] = early.take()
    assert (message.payload, message.retain) == (b"new", True)
    sender.publish(f"{name}/a", b"", retain=True)
    [clearing] = early.take()
    assert (clearing.payload, clearing.retain) == (b"", False)
    late = paho()
    late.subscribe(f"{name}/#")
    sender.publish(f"{name}/fence", b"fence")
    assert late.payloads() == [b"fence"]


def test_retained_messages_are_found_by_wildcards(paho: MakePaho, name: str) -> None:
    sender = paho()
    for topic in ("a/x", "b/x", "b/y"):
        sender.publish(f"{name}/{topic}", topic.encode(), retain=True)
    for topic_filter, expected in (("+/x", [b"a/x", b"b/x"]), ("b/#", [b"b/x", b"b/y"])):
        device = paho()
        device.subscribe(f"{name}/{topic_filter}")
        assert sorted(device.payloads(2)) == expected


def test_a_client_without_subscriptions_gets_nothing(raw: MakeRaw, paho: MakePaho, name: str) -> None:
    silent, other, sender = raw(), paho(), paho()
    silent.join(name)
    sender.publish(f"{name}/a", b"m", retain=True)
    other.subscribe(f"{name}/#")
    assert other.payloads() == [b"m"]
    assert silent.until_ping() == []


def test_an_unsubscribed_filter_delivers_nothing(paho: MakePaho, name: str) -> None:
    device, sender = paho(), paho()
    device.subscribe(f"{name}/a")
    device.subscribe(f"{name}/b")
    device.client.unsubscribe(f"{name}/a")
    # Answers are in order, so this answer shows that the broker has processed the unsubscription.
    device.subscribe(f"{name}/c")
    sender.publish(f"{name}/a", b"no")
    sender.publish(f"{name}/b", b"yes")
    assert device.payloads() == [b"yes"]


# --- wills ---


def test_a_cut_connection_publishes_its_will(paho: MakePaho, name: str) -> None:
    watcher = paho()
    watcher.subscribe(f"{name}/#")
    device = paho(name, will=(f"{name}/state", b"offline"))
    device.publish(f"{name}/state", b"online")
    device.cut()
    assert watcher.payloads(2) == [b"online", b"offline"]


def test_a_polite_disconnect_publishes_no_will(raw: MakeRaw, paho: MakePaho, name: str) -> None:
    watcher, device = paho(), raw()
    watcher.subscribe(f"{name}/#")
    device.join(name, will=Will(f"{name}/state", b"offline", qos=1))
    device.send(Disconnect())
    assert device.until_closed() == []
    watcher.publish(f"{name}/fence", b"fence")
    assert watcher.payloads() == [b"fence"]


def test_a_silent_client_is_considered_dead(raw: MakeRaw, paho: MakePaho, name: str) -> None:
    watcher, device = paho(), raw()
    watcher.subscribe(f"{name}/#")
    device.join(name, keep_alive=1, will=Will(f"{name}/state", b"offline", qos=1))
    assert watcher.payloads() == [b"offline"]
    device.until_closed()


def test_a_take_over_publishes_the_old_will_and_ends_the_old_connection(
    raw: MakeRaw, paho: MakePaho, name: str
) -> None:
    watcher, old, new = paho(), raw(), raw()
    watcher.subscribe(f"{name}/#")
    old.join(name, will=Will(f"{name}/state", b"offline", qos=1))
    new.join(name)
    new.send(Publish(f"{name}/state", b"birth", 1, packet_id=1))
    assert watcher.payloads(2) == [b"offline", b"birth"]
    # Mosquitto may close the connection without a DISCONNECT packet.
    assert old.until_closed() in ([], [Disconnect(Code.TAKEN_OVER)])
    assert new.until_ping() in ([], [PubAck(1)])


# --- sessions ---


def test_a_persistent_session_receives_missed_messages_in_order(paho: MakePaho, name: str) -> None:
    paho(f"{name}-d", clean=False).subscribe(name)
    first = paho(f"{name}-d", clean=False)
    assert first.flags.session_present
    first.cut()
    sender, sent = paho(), numbered(1500)
    for payload in sent[:-1]:
        sender.client.publish(name, payload, 1)
    sender.publish(name, sent[-1])
    back = paho(f"{name}-d", clean=False)
    assert back.flags.session_present
    assert back.payloads(1500) == sent


def test_the_queue_of_an_absent_client_is_bounded(paho: MakePaho, name: str) -> None:
    device = paho(f"{name}-d", clean=False)
    device.subscribe(f"{name}/#")
    device.cut()
    # 100 MB for a queue of 64 MiB: it holds 67 messages, and up to 20 more may count as in flight.
    sender, sent = paho(), numbered(100, 1_000_000)
    for payload in sent:
        sender.publish(f"{name}/x", payload)
    back = paho(f"{name}-d", clean=False)
    received = back.payloads(60)
    sender.publish(f"{name}/end", b"end")
    while received[-1] != b"end":
        received += back.payloads()
    kept = len(received) - 1
    assert 60 <= kept <= 87
    assert received[:-1] == sent[:kept]


def test_a_clean_start_forgets_the_session(paho: MakePaho, name: str) -> None:
    device = paho(f"{name}-d", clean=False)
    device.subscribe(name)
    device.cut()
    sender = paho()
    sender.publish(name, b"missed")
    clean = paho(f"{name}-d")
    assert not clean.flags.session_present
    clean.subscribe(f"{name}/fence")
    sender.publish(name, b"not subscribed any more")
    sender.publish(f"{name}/fence", b"fence")
    assert clean.payloads() == [b"fence"]


# --- many clients, large packets and slow clients ---


def test_an_oversized_packet_is_refused_and_other_clients_continue(
    paho: MakePaho, raw: MakeRaw, name: str
) -> None:
    watcher, healthy, greedy = paho(), paho(), raw()
    watcher.subscribe(f"{name}/#")
    greedy.join(name)
    # The header announces 2 MiB; the broker refuses the packet when it reads the length.
    greedy.socket.sendall(b"\x30\x80\x80\x80\x01" + bytes(100))
    assert greedy.until_closed() in ([], [Disconnect(Code.TOO_LARGE)])
    healthy.publish(f"{name}/ok", bytes(1_000_000))
    assert [m.topic for m in watcher.take()] == [f"{name}/ok"]


@pytest.mark.parametrize("qos", [0, 1])
def test_a_slow_subscriber_does_not_delay_a_fast_one(
    paho: MakePaho, raw: MakeRaw, name: str, qos: int
) -> None:
    slow, fast, sender = raw(), paho(), paho()
    slow.join(name)
    slow.subscribe(Filter(name, 1))
    fast.subscribe(name)
    for payload in numbered(60, 500_000):
        sender.publish(name, payload, qos)
        assert fast.payloads() == [payload]


def test_two_hundred_clients_connect(raw: MakeRaw, name: str) -> None:
    crowd = [raw() for _ in range(200)]
    for index, client in enumerate(crowd):
        client.join(f"{name}-{index}")
    assert [client.until_ping() for client in crowd] == [[]] * 200


# --- MQTT 5 ---


@only_5
def test_the_largest_packet_is_announced(paho: MakePaho) -> None:
    assert paho().announced.MaximumPacketSize == 1048576


@only_5
def test_an_empty_identifier_is_assigned(raw: MakeRaw) -> None:
    keys = [item.key for item in raw().join("").properties]
    assert Prop.ASSIGNED_CLIENT_ID in keys


@only_5
@pytest.mark.parametrize(("expiry_s", "remembered"), [(0, False), (60, True)])
def test_a_session_lasts_for_the_requested_time(
    raw: MakeRaw, name: str, expiry_s: int, remembered: bool
) -> None:
    first, second = raw(), raw()
    first.join(name, clean_start=False, properties=(Property(Prop.SESSION_EXPIRY, expiry_s),))
    first.send(Disconnect())
    first.until_closed()
    assert second.join(name, clean_start=False).session_present is remembered


@only_5
def test_a_message_keeps_its_properties_and_its_remaining_life(paho: MakePaho, name: str) -> None:
    device = paho(f"{name}-d", clean=False)
    device.subscribe(name)
    device.cut()
    block = with_properties(
        PacketTypes.PUBLISH,
        MessageExpiryInterval=100,
        ContentType="application/json",
        CorrelationData=b"\0\1",
        UserProperty=[("a", "1"), ("a", "2")],
    )
    paho().publish(name, b"m", properties=block)
    got: Any = paho(f"{name}-d", clean=False).take()[0].properties
    assert 90 <= got.MessageExpiryInterval <= 100
    assert (got.ContentType, got.CorrelationData) == ("application/json", b"\0\1")
    assert got.UserProperty == [("a", "1"), ("a", "2")]


@only_5
def test_no_local_excludes_the_client_s_own_messages(paho: MakePaho, name: str) -> None:
    device = paho()
    device.subscribe(f"{name}/a", options=SubscribeOptions(qos=1, noLocal=True))
    device.subscribe(f"{name}/b")
    device.publish(f"{name}/a", b"own")
    paho().publish(f"{name}/a", b"other's")
    device.publish(f"{name}/b", b"fence")
    assert device.payloads(2) == [b"other's", b"fence"]


@only_5
@pytest.mark.parametrize(("handling", "times"), [(0, 2), (1, 1), (2, 0)])
def test_retain_handling_controls_when_retained_messages_are_sent(
    paho: MakePaho, name: str, handling: int, times: int
) -> None:
    paho().publish(name, b"kept", retain=True)
    device = paho()
    for _ in range(2):
        device.subscribe(name, options=SubscribeOptions(qos=1, retainHandling=handling))
    device.publish(name, b"fence")
    assert device.payloads(times + 1) == [b"kept"] * times + [b"fence"]


@only_5
def test_a_delayed_will_is_not_published_if_the_client_returns(
    raw: MakeRaw, paho: MakePaho, name: str
) -> None:
    watcher, first, second = paho(), raw(), raw()
    watcher.subscribe(f"{name}/#")
    will = Will(f"{name}/state", b"offline", qos=1, properties=(Property(Prop.WILL_DELAY, 30),))
    first.join(name, will=will, properties=(Property(Prop.SESSION_EXPIRY, 60),))
    first.close()
    assert second.join(name, clean_start=False).session_present
    watcher.publish(f"{name}/fence", b"fence")
    assert watcher.payloads() == [b"fence"]


@only_5
def test_a_disconnect_can_request_the_will(raw: MakeRaw, paho: MakePaho, name: str) -> None:
    watcher, device = paho(), raw()
    watcher.subscribe(f"{name}/#")
    device.join(name, will=Will(f"{name}/state", b"offline", qos=1))
    device.send(Disconnect(Code.DISCONNECT_WITH_WILL))
    assert watcher.payloads() == [b"offline"]


@only_5
def test_packets_larger_than_a_client_accepts_are_not_sent(raw: MakeRaw, paho: MakePaho, name: str) -> None:
    small, sender = raw(), paho()
    answer = small.join(name, properties=(Property(Prop.MAXIMUM_PACKET_SIZE, 1000),))
    assert number(answer.properties, Prop.MAXIMUM_PACKET_SIZE, 0) == 1048576
    small.subscribe(Filter(name, 1))
    sender.publish(name, bytes(2000))
    sender.publish(name, b"small")
    received = small.receive()
    assert isinstance(received, Publish)
    assert received.payload == b"small"
