"""A client that says and hears whatever the broker lets it."""

import queue
import socket
import ssl
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.tls import make_context

DEADLINE_S = 20.0
V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5


class Client:
    """One connection, which does not come back once it is lost."""

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
        self._happened: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.heard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._client.on_connect = lambda c, u, flags, reason, p: self._happened.put(("connect", reason))
        self._client.on_subscribe = lambda c, u, mid, reasons, p: self._happened.put(("subscribe", reasons))
        self._client.on_publish = lambda c, u, mid, reason, p: self._happened.put(("publish", reason))
        self._client.on_disconnect = lambda c, u, flags, reason, p: self._happened.put(("end", reason))
        self._client.on_message = lambda c, u, message: self.heard.put((message.topic, message.payload))
        if will is not None:
            self._client.will_set(will, b"will", qos=1)
        self._client.connect(address.host, address.port, keepalive=30)
        self._client.loop_start()
        assert not self.next("connect").is_failure

    def next(self, what: str) -> Any:
        """Wait for this to happen; what happens before it is passed over."""
        while True:
            happened, about = self._happened.get(timeout=DEADLINE_S)
            if happened == what:
                return about

    def subscribe(self, topic_filter: str) -> None:
        self._client.subscribe(topic_filter, qos=1)
        self.next("subscribe")

    def publish(self, topic: str, payload: bytes = b"x", *, retain: bool = False) -> Any:
        """Publish and wait for the broker's answer, which under 3.1.1 says nothing."""
        self._client.publish(topic, payload, qos=1, retain=retain)
        return self.next("publish")

    def hear(self) -> tuple[str, bytes]:
        return self.heard.get(timeout=DEADLINE_S)

    def everything_heard(self) -> list[tuple[str, bytes]]:
        heard = []
        while not self.heard.empty():
            heard.append(self.heard.get())
        return heard

    def cut(self) -> None:
        """Lose the connection, without a word to the broker."""
        link = self._client.socket()
        assert link is not None
        link.shutdown(socket.SHUT_RDWR)
        self.next("end")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def refusal(address: BrokerAddress) -> str:
    """How the broker ends an attempt to connect, in OpenSSL's words; empty where it does not."""
    assert address.tls is not None
    context = make_context(address.tls)
    # Up to 1.2 the answer to a certificate is a part of the handshake; later it may come too late to be read.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    connect = bytes([0x10, 16, 0, 4]) + b"MQTT" + bytes([4, 2, 0, 30, 0, 4]) + b"test"
    with socket.create_connection((address.host, address.port), timeout=DEADLINE_S) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=address.host) as secure:
                secure.sendall(connect)
                # CONNACK with return code 0, or the alert that says why not.
                answer = secure.recv(4)
                return "" if answer == bytes([0x20, 2, 0, 0]) else f"answered {answer.hex()}"
        except (ssl.SSLError, ConnectionError) as error:
            return str(error).lower().replace("_", " ")
