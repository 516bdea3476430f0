"""Limits of the inbox, which are lower for large messages."""

import queue
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edge_client.transport.broker_link import Arrived, BrokerAddress, LinkDown
from edge_client.transport.message_parts import SMALL_PAYLOAD
from edge_client.transport.mqtt_client import MAX_INBOX, MAX_LARGE, Link


@pytest.mark.parametrize(
    ("waiting", "size", "accepted"),
    [
        (MAX_LARGE, SMALL_PAYLOAD + 1, True),
        (MAX_LARGE + 1, SMALL_PAYLOAD + 1, False),
        (MAX_LARGE + 1, SMALL_PAYLOAD, True),
        (MAX_INBOX, SMALL_PAYLOAD, True),
        (MAX_INBOX + 1, 1, False),
    ],
)
def test_a_message_is_dropped_if_the_inbox_is_too_full(waiting: int, size: int, accepted: bool) -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for _ in range(waiting):
        inbox.put(None)
    link = Link(BrokerAddress("127.0.0.1", 1), inbox, client_id="device", filters=())
    message = mqtt.MQTTMessage(topic=b"t")
    message.payload = bytes(size)
    link.client.on_message(link.client, None, message)
    assert link.dropped == (not accepted)
    last = [inbox.get() for _ in range(inbox.qsize())][-1]
    assert last == (Arrived("t", bytes(size)) if accepted else None)


def test_the_reason_of_a_lost_connection_is_the_last_error_of_paho() -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    link = Link(BrokerAddress("127.0.0.1", 1), inbox, client_id="device", filters=())
    link.client._easy_log(mqtt.MQTT_LOG_ERR, "failed to receive on socket: %s", "reset by peer")
    link.client._easy_log(mqtt.MQTT_LOG_DEBUG, "Sending DISCONNECT")
    flags, reason = mqtt.DisconnectFlags(False), ReasonCode(PacketTypes.DISCONNECT, "Unspecified error")
    link.client.on_disconnect(link.client, None, flags, reason, None)
    assert inbox.get() == LinkDown("failed to receive on socket: reset by peer")
