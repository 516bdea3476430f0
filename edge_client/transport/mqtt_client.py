"""The link to the broker: paho-mqtt behind a few events, the same for server and devices.

Callbacks run in paho's network thread, so they only put an event in the owner's inbox: nothing there is slow
and nothing raises. Reconnecting, with capped exponential backoff and jitter, is paho's; what must be said
again after a cut is the state machines' business. Chunks wait here until the broker has confirmed earlier
ones, so that no queue grows, and are read from disk only when it is their turn.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.message_parts import Parts, split
from edge_client.transport.tls import explain, is_lasting, load_pair, make_context
from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_HEADER_BYTES

log = logging.getLogger(__name__)

KEEPALIVE_S = 30
MAX_IN_FLIGHT = 16
MAX_INBOX = 20_000
SMALL_PAYLOAD, MAX_LARGE = 12 * 1024, 1024
"""Of larger payloads no more than so many wait: 32 uploads of 16 chunks each are half of that."""
MAX_PACKET = 1024 * 1024 + 64 * 1024
"""The largest chunk and its frame: an MQTT 5 broker is told to send nothing larger."""
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
UNSUPPORTED_PROTOCOL, SESSION_TAKEN_OVER = 0x84, 0x8E
REFUSED_FOR_GOOD = frozenset({UNSUPPORTED_PROTOCOL, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"""Protocol, client identifier, user name or password, not authorised, banned, bad authentication method."""
WITH_WILL = 0x04
MAX_LAST, GOODBYE_S = 64, 3.0
"""How many of the last messages a clean end waits for, and for how long at most."""


@dataclass(frozen=True)
class LinkUp:
    """Event: connected. `session` counts this client's connections; `max_packet` is the broker's limit."""

    session: int
    max_packet: int | None


@dataclass(frozen=True)
class LinkDown:
    """Event: the connection ended, was refused, or could not be made; paho goes on trying.

    What is `lasting` no further try will mend. `taken_over`: another client has come with the same name.
    """

    reason: str
    downgrade: bool = False
    lasting: bool = False
    taken_over: bool = False


@dataclass(frozen=True)
class Arrived:
    """Event: a message."""

    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True)
class Confirmed:
    """Event: the broker has taken message `mid`."""

    mid: int


@dataclass(frozen=True)
class NotGranted:
    """Event: the broker does not let this client subscribe to one of its filters."""

    code: int
    reason: str


LinkEvent = LinkUp | LinkDown | Arrived | Confirmed | NotGranted
Inbox = queue.SimpleQueue[Any]
Will = Callable[[int], tuple[str, bytes]]


class Link:
    """One MQTT connection; all methods but the callbacks belong to the thread that owns the inbox."""

    def __init__(
        self,
        address: BrokerAddress,
        inbox: Inbox,
        *,
        client_id: str,
        filters: Sequence[str],
        will: Will | None = None,
        will_retained: bool = True,
        first_session: int = 1,
        longest_delay_s: float | None = None,
    ) -> None:
        self._longest_delay_s = LONGEST_DELAY_S if longest_delay_s is None else longest_delay_s
        self._address, self._inbox = address, inbox
        self._client_id, self._filters, self._will = client_id, tuple(filters), will
        self._will_retained = will_retained
        self._listened: frozenset[str] = frozenset()
        self._session = first_session - 1
        self._version = MQTTProtocolVersion.MQTTv5
        self._tls: ssl.SSLContext | None = None if address.tls is None else make_context(address.tls)
        self._trouble = ""
        self._most: int | None = None
        self._sizes: dict[int, int] = {}
        self._parts = Parts()
        self._client = self._make_client()
        self._waiting: deque[tuple[Hashable, str, Callable[[], bytes]]] = deque()
        self._queued: set[Hashable] = set()
        self._in_flight: set[int] = set()
        self._unconfirmed: set[int] = set()
        self._last: deque[mqtt.MQTTMessageInfo] = deque(maxlen=MAX_LAST)
        self.dropped = 0

    def open(self) -> None:
        """Begin to connect; `LinkUp` tells when that has worked."""
        properties = None
        if self._version is MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.MaximumPacketSize = MAX_PACKET
        host, port = self._address.host, self._address.port
        self._client.connect_async(host, port, keepalive=KEEPALIVE_S, properties=properties)
        self._client.loop_start()

    def close(self, *, with_will: bool = False) -> None:
        """Disconnect cleanly, without a last will, once the broker has what was published last.

        MQTT 5 lets a broker send the will all the same, where it is asked to (`with_will`).

        A socket that closes with input unread resets its connection, and what the broker had not read yet
        is lost: without this wait, every second farewell.
        """
        until = time.monotonic() + GOODBYE_S
        for message in self._last:
            with contextlib.suppress(RuntimeError, ValueError):
                if self._client.is_connected():
                    message.wait_for_publish(max(0.0, until - time.monotonic()))
        said = with_will and self._version is MQTTProtocolVersion.MQTTv5
        self._client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=WITH_WILL) if said else None)
        self._client.loop_stop()

    def reconnect(self) -> None:
        """End the connection and make another, with the certificate that lies in its file now."""
        self._client.disconnect()
        self._client.loop_stop()
        self.open()

    @property
    def outgoing(self) -> int:
        """How many messages and chunks the broker has not taken yet."""
        return len(self._waiting) + len(self._in_flight) + len(self._unconfirmed)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1) -> None:
        """Publish, in parts where it is too large for a packet (see `fit`).

        At QoS 1 what is published while offline waits for the next connection.
        """
        for part in split(payload, self._most):
            self._publish_part(topic, part, retain=retain, qos=qos)

    def fit(self, chunk_bytes: int) -> None:
        """From now on no message is larger than the frame of such a chunk."""
        self._most = chunk_bytes + CHUNK_HEADER_BYTES

    def echo(self, topic: str, payload: bytes) -> None:
        """Publish once, whole and at QoS 0, to see whether it comes back."""
        self._client.publish(topic, payload, qos=0)

    def _publish_part(self, topic: str, payload: bytes, *, retain: bool, qos: int) -> None:
        info = self._client.publish(topic, payload, qos=qos, retain=retain)
        self._last.append(info)
        self._note_size(info, len(payload) + len(topic), qos)
        if qos and info.rc in (mqtt.MQTT_ERR_SUCCESS, mqtt.MQTT_ERR_NO_CONN):
            self._unconfirmed.add(info.mid)
        if info.rc == mqtt.MQTT_ERR_QUEUE_SIZE:
            about_it = {"reason": "too-many-wait"}
            log.warning("too many messages wait for the broker: one for %s is dropped", topic, extra=about_it)

    def _note_size(self, info: mqtt.MQTTMessageInfo, size: int, qos: int) -> None:
        if qos and size > SMALL_PAYLOAD:
            self._sizes[info.mid] = size

    def listen(self, topics: frozenset[str]) -> None:
        """Hear these topics too, at QoS 0, and no others than them and the filters; also after a reconnect.

        What is published after this call is sent by the broker after it has heard of the subscription. Of
        several topics the first that are given up are heard on until the last is: that is one message.
        """
        if topics and topics <= self._listened:
            return
        before, self._listened = self._listened, topics
        if before == topics or not self._client.is_connected():
            return
        if gone := before - topics:
            self._client.unsubscribe(sorted(gone))
        if new := topics - before:
            self._client.subscribe([(topic, 0) for topic in sorted(new)])

    def send_chunk(self, key: Hashable, topic: str, read: Callable[[], bytes]) -> None:
        """Publish a frame when the broker has room; a chunk that waits already is not queued again."""
        if key not in self._queued:
            self._queued.add(key)
            self._waiting.append((key, topic, read))
            self._pump()

    def handle(self, event: LinkEvent) -> None:
        """Let the link act on its own event, in the owner's thread."""
        match event:
            case Confirmed(mid):
                self._in_flight.discard(mid)
                self._unconfirmed.discard(mid)
                self._sizes.pop(mid, None)
                self._pump()
            case LinkUp(_, max_packet):
                self._in_flight.clear()
                if max_packet is not None and max(self._sizes.values(), default=0) > max_packet:
                    log.warning("the broker takes less than before: what waits and is too large is dropped")
                    self._start_over()
                    return
                self._pump()
            case LinkDown(downgrade=True) if self._version is MQTTProtocolVersion.MQTTv5:
                self._downgrade()
            case _:
                pass

    def _pump(self) -> None:
        while self._waiting and len(self._in_flight) < MAX_IN_FLIGHT and self._client.is_connected():
            key, topic, read = self._waiting.popleft()
            self._queued.discard(key)
            try:
                frame = read()
            except OSError as error:
                log.warning("a chunk for %s cannot be read: %s", topic, error)
                continue
            info = self._client.publish(topic, frame, qos=1)
            self._note_size(info, len(frame) + len(topic), 1)
            if info.rc == mqtt.MQTT_ERR_SUCCESS:
                self._in_flight.add(info.mid)

    def _downgrade(self) -> None:
        """Start over with MQTT 3.1.1: the broker does not speak 5."""
        self._version = MQTTProtocolVersion.MQTTv311
        self._start_over()

    def _start_over(self) -> None:
        """Connect anew and without what waited: paho would send it again on every connection."""
        self._client.disconnect()
        self._client.loop_stop()
        self._unconfirmed.clear()
        self._sizes.clear()
        self._client = self._make_client()
        self.open()

    def _make_client(self) -> mqtt.Client:
        client = mqtt.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=self._version,
            clean_session=None if self._version is MQTTProtocolVersion.MQTTv5 else True,
        )
        client.max_inflight_messages_set(MAX_IN_FLIGHT + 4)
        client.max_queued_messages_set(10_000)
        client.on_pre_connect = self._on_pre_connect
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_socket_open = _without_delay
        _spread_reconnects(client, self._longest_delay_s)
        if self._address.username is not None:
            client.username_pw_set(self._address.username, self._address.password)
        client.enable_logger(_Errors(self._heard_of))
        if self._tls is not None:
            client.tls_set_context(self._tls)
        return client

    # --- callbacks, in paho's thread ---
    def _on_pre_connect(self, client: mqtt.Client, userdata: Any) -> None:
        self._session += 1
        self._trouble = ""
        if self._tls is not None and self._address.tls is not None:
            # A certificate that was replaced meanwhile is used from here on.
            with contextlib.suppress(ConfigError):
                load_pair(self._tls, self._address.tls)
        if self._will is not None:
            topic, payload = self._will(self._session)
            client.will_set(topic, payload, qos=1, retain=self._will_retained)

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        if reason.is_failure:
            downgrade = client.protocol is MQTTProtocolVersion.MQTTv5 and reason.value == UNSUPPORTED_PROTOCOL
            lasting = reason.value in REFUSED_FOR_GOOD and not downgrade
            self._inbox.put(LinkDown(f"the broker refused: {reason}", downgrade=downgrade, lasting=lasting))
            return
        _spread_reconnects(client, self._longest_delay_s)
        for topic_filter in self._filters:
            client.subscribe(topic_filter, qos=1)
        for topic in self._listened:
            client.subscribe(topic, qos=0)
        self._inbox.put(LinkUp(self._session, getattr(properties, "MaximumPacketSize", None)))

    def _on_connect_fail(self, client: mqtt.Client, userdata: Any) -> None:
        error = sys.exc_info()[1]
        why = explain(error, self._address)
        said = f"the broker cannot be reached: {why}" if why else "the broker cannot be reached"
        self._inbox.put(LinkDown(said, lasting=is_lasting(error)))

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        taken_over = getattr(reason, "value", None) == SESSION_TAKEN_OVER
        why = (
            "another client has come with this name" if taken_over else explain(self._trouble, self._address)
        )
        lasting = is_lasting(self._trouble)
        self._inbox.put(LinkDown(why or str(reason), lasting=lasting, taken_over=taken_over))

    def _heard_of(self, trouble: str) -> None:
        self._trouble = trouble

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        small = len(message.payload) <= SMALL_PAYLOAD
        if self._inbox.qsize() > (MAX_INBOX if small else MAX_LARGE):
            self.dropped += 1
            return
        try:
            whole = self._parts.take(message.topic, bytes(message.payload))
            if whole is not None:
                self._inbox.put(Arrived(message.topic, whole, bool(message.retain)))
        except UnicodeDecodeError:
            self.dropped += 1

    def _on_subscribe(
        self, client: mqtt.Client, userdata: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        for reason in reasons:
            if reason.is_failure:
                self._inbox.put(NotGranted(reason.value, str(reason)))

    def _on_publish(self, client: mqtt.Client, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        self._inbox.put(Confirmed(mid))


class _Errors(logging.Logger):
    """What paho says of its errors; a callback would have every message put into words that nobody reads."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__("paho", logging.ERROR)
        self._tell = tell

    def handle(self, record: logging.LogRecord) -> None:
        """Tell it."""
        self._tell(record.getMessage())


def _spread_reconnects(client: mqtt.Client, longest_delay_s: float) -> None:
    """Jitter: devices that lost the broker together do not come back together."""
    longest = longest_delay_s * random.uniform(0.5, 1.0)
    first = min(FIRST_DELAY_S * random.uniform(0.5, 1.5), longest)
    client.reconnect_delay_set(first, longest)  # type: ignore[arg-type]


def _without_delay(client: mqtt.Client, userdata: Any, sock: Any) -> None:
    """Nagle and delayed acknowledgements together cost 40 to 90 ms per QoS 1 exchange."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
