"""Two MQTT clients for the tests: paho, as devices use it, and a raw socket that can misbehave."""

import queue
import socket
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_server.transport.broker import decoding, encoding, packets
from edge_server.transport.broker.launch import RunningBroker

DEADLINE_S = 20.0


def with_properties(packet_type: int, **values: Any) -> Properties:
    """Return paho properties of one packet type."""
    block = Properties(packet_type)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(block, name, value)
    return block


def _no_delay(_client: mqtt.Client, _userdata: Any, raw: Any) -> None:
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Paho:
    """A paho client whose callbacks only fill queues; it does not reconnect by itself."""

    def __init__(
        self,
        broker: RunningBroker,
        version: int,
        client_id: str = "",
        *,
        clean: bool = True,
        keep_s: int = 60,
        will: tuple[str, bytes] | None = None,
        manual_ack: bool = False,
    ) -> None:
        self.messages: queue.Queue[mqtt.MQTTMessage] = queue.Queue()
        self.connected: queue.Queue[tuple[Any, Any, Any]] = queue.Queue()
        self.gone: queue.Queue[Any] = queue.Queue()
        self._granted: queue.Queue[list[Any]] = queue.Queue()
        self._version = version
        session: dict[str, Any] = {} if version == packets.V5 else {"clean_session": clean or not client_id}
        self.client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=mqtt.MQTTv5 if version == packets.V5 else mqtt.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=manual_ack,
            **session,
        )
        self.client.on_socket_open = _no_delay
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_connect = lambda _c, _u, flags, code, block: self.connected.put((code, flags, block))
        self.client.on_disconnect = lambda _c, _u, _flags, code, _block: self.gone.put(code)
        self.client.on_subscribe = lambda _c, _u, _mid, codes, _block: self._granted.put(codes)
        if will:
            self.client.will_set(*will, qos=1)
        start: dict[str, Any] = {}
        if version == packets.V5:
            expiry_s = 0 if clean else keep_s
            start = {
                "clean_start": clean,
                "properties": with_properties(PacketTypes.CONNECT, SessionExpiryInterval=expiry_s),
            }
        self.client.connect(broker.host, broker.port, keepalive=30, **start)
        self.client.loop_start()
        self.code, self.flags, self.announced = self.connected.get(timeout=DEADLINE_S)

    def subscribe(self, topic_filter: str, qos: int = 1, options: SubscribeOptions | None = None) -> int:
        """Subscribe, and return the granted QoS or the failure code once the broker answered."""
        if options:
            self.client.subscribe(topic_filter, options=options)
        else:
            self.client.subscribe(topic_filter, qos)
        return int(self._granted.get(timeout=DEADLINE_S)[0].value)

    def publish(self, topic: str, payload: bytes, qos: int = 1, **more: Any) -> None:
        self.client.publish(topic, payload, qos, **more).wait_for_publish(DEADLINE_S)

    def take(self, count: int = 1) -> list[mqtt.MQTTMessage]:
        return [self.messages.get(timeout=DEADLINE_S) for _ in range(count)]

    def payloads(self, count: int = 1) -> list[bytes]:
        return [bytes(message.payload) for message in self.take(count)]

    def cut(self) -> None:
        raw = self.client.socket()
        assert isinstance(raw, socket.socket)
        raw.shutdown(socket.SHUT_RDWR)
        self.gone.get(timeout=DEADLINE_S)
        self.client.loop_stop()

    def leave(self) -> None:
        """Disconnect politely, if still connected."""
        self.client.disconnect()
        self.client.loop_stop()


class Raw:
    """A socket that speaks MQTT packet by packet and does nothing by itself."""

    def __init__(self, broker: RunningBroker, version: int = packets.V5) -> None:
        self.version = version
        self.socket = socket.create_connection((broker.host, broker.port), timeout=DEADLINE_S)
        self._stream = self.socket.makefile("rb")

    def send(self, packet: packets.Packet) -> None:
        self.socket.sendall(encoding.encode(packet, self.version))

    def receive(self) -> packets.Packet | None:
        """Return the next packet, or None if the broker closed the connection."""
        try:
            head = self._stream.read(2)
            if len(head) < 2:
                return None
            while (frame := decoding.frame_length(head)) is None:
                head += self._stream.read(1)
            body = self._stream.read(frame[1])
        except ConnectionError:
            return None
        return decoding.decode(head[0], memoryview(body), self.version)

    def join(self, client_id: str, **more: Any) -> packets.ConnAck:
        """Connect and return the broker's answer."""
        self.send(packets.Connect(self.version, client_id, **more))
        answer = self.receive()
        assert isinstance(answer, packets.ConnAck)
        return answer

    def subscribe(self, *filters: packets.Filter) -> tuple[int, ...]:
        """Subscribe and return the granted codes."""
        self.send(packets.Subscribe(1, filters))
        answer = self.receive()
        assert isinstance(answer, packets.SubAck)
        return answer.codes

    def until_ping(self) -> list[packets.Packet]:
        """Return everything that the broker had sent before it answered a ping."""
        self.send(packets.PingReq())
        before: list[packets.Packet] = []
        while not isinstance(packet := self.receive(), packets.PingResp):
            assert packet is not None, "the broker closed the connection"
            before.append(packet)
        return before

    def until_closed(self) -> list[packets.Packet]:
        """Return everything that the broker sends until it closes the connection."""
        return list(iter(self.receive, None))

    def close(self) -> None:
        self._stream.close()
        self.socket.close()
