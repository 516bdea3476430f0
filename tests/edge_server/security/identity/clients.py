"""An MQTT client that publishes and subscribes without restrictions of its own."""

import queue
import socket
import ssl
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edge_client.transport.broker_link import BrokerAddress
from edge_client.transport.tls import make_context

DEADLINE_S = 20.0
V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5


class Client:
    """One connection, without reconnection."""

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str = "any",
        version: MQTTProtocolVersion = V5,
        will: str | None = None,
    ) -> None:
        self._client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=version,
            clean_session=None if version is V5 else True,
            reconnect_on_failure=False,
        )
        assert address.tls is not None
        self._client.tls_set_context(make_context(address.tls))
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.heard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._client.on_connect = lambda c, u, flags, reason, p: self._events.put(("connect", reason))
        self._client.on_subscribe = lambda c, u, mid, reasons, p: self._events.put(("subscribe", reasons))
        self._client.on_publish = lambda c, u, mid, reason, p: self._events.put(("publish", reason))
        self._client.on_disconnect = lambda c, u, flags, reason, p: self._events.put(("end", reason))
        self._client.on_message = lambda c, u, message: self.heard.put((message.topic, message.payload))
        if will is not None:
            self._client.will_set(will, b"will", qos=1)
        self._client.connect(address.host, address.port, keepalive=30)
        self._client.loop_start()
        assert not self.next("connect").is_failure

    def next(self, what: str) -> Any:
        """Wait for an event of this kind, ignoring others before it."""
        while True:
            event, value = self._events.get(timeout=DEADLINE_S)
            if event == what:
                return value

    def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, qos=1)
        self.next("subscribe")

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> Any:
        """Publish and wait for the broker's answer, which contains no reason under 3.1.1."""
        self._client.publish(topic, payload, qos=1, retain=retain)
        return self.next("publish")

    def hear(self) -> tuple[str, bytes]:
        return self.heard.get(timeout=DEADLINE_S)

    def everything_heard(self) -> list[tuple[str, bytes]]:
        messages = []
        while not self.heard.empty():
            messages.append(self.heard.get())
        return messages

    def cut(self) -> None:
        """Lose the connection without sending DISCONNECT to the broker."""
        link = self._client.socket()
        assert link is not None
        link.shutdown(socket.SHUT_RDWR)
        self.next("end")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def refusal(address: BrokerAddress) -> str:
    """The OpenSSL error with which the broker refuses a connection; empty if it accepts."""
    assert address.tls is not None
    context = make_context(address.tls)
    # Up to TLS 1.2 the handshake includes the answer to a certificate; in TLS 1.3 it may arrive too late.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connect = bytes([0x10, 16, 0, 4]) + b"MQTT" + bytes([4, 2, 0, 30, 0, 4]) + b"test"
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=address.host) as secure:
                secure.sendall(connect)
                # CONNACK with return code 0, or an alert with the reason.
                answer = secure.recv(4)
                return "" if answer == bytes([0x20, 2, 0, 0]) else f"answered {answer.hex()}"
        except (ssl.SSLError, ConnectionError) as error:
            return str(error).lower().replace("_", " ")
