"""The connection to the broker, for server and devices: paho-mqtt behind a few events.

Callbacks run in paho's network thread and only put an event into the owner's inbox: they are fast and never
raise. paho reconnects with capped exponential backoff and jitter; the state machines repeat what was lost.
"""

import contextlib
import logging
import random
import ssl
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from edge_client.transport import broker_link, message_parts, paho_client, tls
from schemas.errors import ConfigError
from schemas.tensors.chunks import CHUNK_HEADER_BYTES

log = logging.getLogger(__name__)

MAX_INBOX = 20_000  # Largest number of waiting messages
MAX_LARGE = 1024
"""Largest number of waiting messages above `SMALL_PAYLOAD`: twice that of 32 uploads of 16 chunks."""
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 60.0
UNSUPPORTED_PROTOCOL, KEEPALIVE_TIMEOUT, SESSION_TAKEN_OVER = 0x84, 0x8D, 0x8E
REFUSED_FOR_GOOD = frozenset({UNSUPPORTED_PROTOCOL, 0x85, 0x86, 0x87, 0x8A, 0x8C})
"""Protocol, client identifier, user name or password, not authorised, banned, bad authentication method."""
WITH_WILL = 0x04
FLUSH_S = 3.0  # How long a clean end waits for the last messages at most
QUICK_S, MAX_QUICK = 5.0, 3
"""A connection lost this soon is a quick loss. After so many in a row another client has this name: brokers
close the earlier of two such connections, Mosquitto 2.0.11 without a reason."""
TAKEN_OVER = "another client has come with this name"
SUPPOSED = f"{MAX_QUICK} connections ended within {QUICK_S:.0f} s and without a reason, as if {TAKEN_OVER}"

Will = Callable[[int], tuple[str, bytes]]


class Link:
    """One MQTT connection; all methods except the callbacks belong to the thread that owns the inbox.

    `filters` are subscribed to at QoS 1, and `evidence` while another client seems to have this one's name.
    `will` gives topic and payload of the last will of a session. With `reports_subscribed` the inbox gets
    `Subscribed` for each answer to a subscription.
    """

    def __init__(
        self,
        address: broker_link.BrokerAddress,
        inbox: broker_link.Inbox,
        *,
        client_id: str,
        filters: Sequence[str],
        will: Will | None = None,
        will_retained: bool = True,
        first_session: int = 1,
        longest_delay_s: float | None = None,
        reports_subscribed: bool = False,
        evidence: Sequence[str] = (),
    ) -> None:
        self._address, self._inbox, self.client_id = address, inbox, client_id
        self._filters, self._evidence, self._reports_subscribed = filters, evidence, reports_subscribed
        self._will, self._will_retained = will, will_retained
        self.longest_delay_s = LONGEST_DELAY_S if longest_delay_s is None else longest_delay_s
        self._listened: frozenset[str] = frozenset()
        self._session = first_session - 1
        self.version = MQTTProtocolVersion.MQTTv5
        self._tls: ssl.SSLContext | None = None if address.tls is None else tls.make_context(address.tls)
        self._trouble = ""
        self._answered = False
        self._up_at: float | None = None
        self._quick = self._hung_up = 0
        self._largest_part: int | None = None
        self._parts = message_parts.Parts()
        self._outbox = message_parts.Outbox()
        self.client = self.prepare_client()
        self.dropped = 0

    def open(self) -> None:
        """Start to connect; `LinkUp` reports success."""
        terms = paho_client.connect_terms(self.version)
        self.client.connect_async(self._address.host, self._address.port, **terms)
        self.client.loop_start()

    def close(self, *, with_will: bool = False) -> None:
        """Disconnect cleanly after the broker has acknowledged the last messages.

        With `with_will` an MQTT 5 broker still publishes the last will.

        A socket that closes with unread input resets its connection, and the broker loses what it has not
        read: without the wait, every second last message.
        """
        self._outbox.flush(self.client, FLUSH_S)
        publish_will = with_will and self.version is MQTTProtocolVersion.MQTTv5
        self.client.disconnect(
            ReasonCode(PacketTypes.DISCONNECT, identifier=WITH_WILL) if publish_will else None
        )
        self.client.loop_stop()

    def pause(self) -> None:
        """End the connection until `open` is called; messages that were not acknowledged wait."""
        self.client.disconnect()
        self.client.loop_stop()

    def reconnect(self) -> None:
        """End the connection and make another, with the current certificate file."""
        self.pause()
        self.open()

    @property
    def outgoing(self) -> int:
        """Number of messages and chunks that the broker has not acknowledged."""
        return len(self._outbox)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1) -> None:
        """Publish a message, in parts if it is too large for a packet (see `fit`).

        At QoS 1 a message that is published offline waits for the next connection.
        """
        for part in message_parts.split(payload, self._largest_part):
            self._outbox.publish(self.client, topic, part, retain=retain, qos=qos)

    def fit(self, chunk_bytes: int) -> None:
        """Limit messages to the size of the frame of a chunk of `chunk_bytes`."""
        self._largest_part = chunk_bytes + CHUNK_HEADER_BYTES

    def echo(self, topic: str, payload: bytes) -> None:
        """Publish once, in one packet and at QoS 0, to test whether it returns; the broker may hang up."""
        self._up_at = None
        self.client.publish(topic, payload, qos=0)

    def listen(self, topics: frozenset[str]) -> None:
        """Subscribe to these topics at QoS 0, in addition to the filters; also after a reconnect.

        A message that is published after this call reaches the broker after the subscription. Topics that
        are no longer needed are unsubscribed together with the last of them, in one message.
        """
        if topics and topics <= self._listened:
            return
        before, self._listened = self._listened, topics
        if before == topics or not self.client.is_connected():
            return
        if gone := before - topics:
            self.client.unsubscribe(sorted(gone))
        if new := topics - before:
            self.client.subscribe([(topic, 0) for topic in sorted(new)])

    def subscribe_again(self) -> None:
        """Subscribe to the filters once more, so that the broker sends what it retains."""
        self.client.subscribe([(each, 1) for each in self._filters])

    def send_chunk(self, key: Hashable, topic: str, read: Callable[[], bytes]) -> None:
        """Publish a frame as soon as the broker has acknowledged enough earlier ones."""
        self._outbox.add_chunk(key, topic, read)
        self._outbox.send_chunks(self.client)

    def handle(self, event: broker_link.LinkEvent) -> None:
        """React to an event of this link, in the owner's thread."""
        match event:
            case broker_link.Confirmed(mid):
                self._outbox.confirm(mid)
                self._outbox.send_chunks(self.client)
            case broker_link.LinkUp(_, max_packet):
                self._outbox.on_reconnected()
                if max_packet is not None and self._outbox.largest > max_packet:
                    log.warning(
                        "the broker accepts smaller packets than before: waiting messages are dropped"
                    )
                    self._start_over()
                    return
                self._outbox.send_chunks(self.client)
            case broker_link.LinkDown(downgrade=True) if self.version is MQTTProtocolVersion.MQTTv5:
                self.version = MQTTProtocolVersion.MQTTv311
                self._start_over()
            case broker_link.LinkDown(silent=True, downgrade=False) if (
                self.version is MQTTProtocolVersion.MQTTv311
            ):
                # It may have been about to start: 3.1.1 must have an answer to stay.
                self.version = MQTTProtocolVersion.MQTTv5
                self._start_over()

    def _start_over(self) -> None:
        """Connect with a new client and drop waiting messages, which paho would repeat on each connection.

        It tries once at once and then seldom, since versions alternate while nothing answers.
        """
        self.pause()
        self._outbox.drop_messages()
        self.client = self.prepare_client()
        self._be_patient()
        self.open()

    def _be_patient(self) -> None:
        longest = self.longest_delay_s
        self.client.reconnect_delay_set(longest, longest)  # type: ignore[arg-type]

    def prepare_client(self) -> mqtt.Client:
        client = paho_client.make_client(self._address, self.client_id, self.version, self._tls)
        client.max_inflight_messages_set(message_parts.MAX_IN_FLIGHT + 4)
        client.max_queued_messages_set(10_000)
        client.on_pre_connect = self._on_pre_connect
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        _spread_reconnects(client, self.longest_delay_s)
        client.enable_logger(_ErrorLogger(self._note_trouble))
        return client

    # --- callbacks, in paho's thread ---
    def _on_pre_connect(self, client: mqtt.Client, userdata: Any) -> None:
        self._session += 1
        self._trouble, self._up_at = "", None
        if self._tls is not None and self._address.tls is not None:
            # The file may hold a renewed certificate.
            with contextlib.suppress(ConfigError):
                tls.load_pair(self._tls, self._address.tls)
        if self._will is not None:
            topic, payload = self._will(self._session)
            client.will_set(topic, payload, qos=1, retain=self._will_retained)

    def _on_connect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        self._answered = True
        if reason.is_failure:
            self._quick = 0
            downgrade = client.protocol is MQTTProtocolVersion.MQTTv5 and reason.value == UNSUPPORTED_PROTOCOL
            lasting = reason.value in REFUSED_FOR_GOOD and not downgrade
            self._inbox.put(
                broker_link.LinkDown(f"the broker refused: {reason}", downgrade=downgrade, lasting=lasting)
            )
            return
        _spread_reconnects(client, self.longest_delay_s)
        self._up_at = time.monotonic()
        evidence = self._evidence if self._quick > 1 else ()
        for topic_filter in (*self._filters, *evidence):
            client.subscribe(topic_filter, qos=1)
        for topic in self._listened:
            client.subscribe(topic, qos=0)
        self._inbox.put(broker_link.LinkUp(self._session, getattr(properties, "MaximumPacketSize", None)))

    def _on_connect_fail(self, client: mqtt.Client, userdata: Any) -> None:
        self._quick = 0
        error = sys.exc_info()[1]
        why = tls.explain(error, self._address)
        reason = f"the broker cannot be reached: {why}" if why else "the broker cannot be reached"
        self._inbox.put(broker_link.LinkDown(reason, lasting=tls.is_lasting(error)))

    def _on_disconnect(
        self, client: mqtt.Client, userdata: Any, flags: Any, reason: Any, properties: Any
    ) -> None:
        taken_over = reason.value == SESSION_TAKEN_OVER
        explained = reason.value == 0 or (flags.is_disconnect_packet_from_server and not taken_over)
        quick = self._up_at is not None and time.monotonic() < self._up_at + QUICK_S
        self._quick = self._quick + 1 if quick and not explained else 0
        why = TAKEN_OVER if taken_over else tls.explain(self._trouble, self._address)
        if not taken_over and self._quick >= MAX_QUICK:
            why, taken_over = SUPPOSED, True
        if taken_over and self._quick >= 2 * MAX_QUICK:
            # By now the evidence has been read, if there is any.
            self._be_patient()
        lasting = tls.is_lasting(self._trouble)
        told = self._answered or explained or why
        silent = not told and self._is_mute(reason.value == KEEPALIVE_TIMEOUT)
        downgrade = silent and client.protocol is MQTTProtocolVersion.MQTTv5
        why = "it does not answer MQTT 5: trying 3.1.1" if downgrade else why or str(reason)
        self._inbox.put(
            broker_link.LinkDown(
                why, downgrade=downgrade, lasting=lasting, taken_over=taken_over, silent=silent
            )
        )

    def _is_mute(self, timed_out: bool) -> bool:
        """Whether the broker does not answer this version.

        It may hang up instead (rumqttd), but so does a proxy whose broker is about to start: version 5 gets
        `MAX_QUICK` tries, 3.1.1 one between them.
        """
        self._hung_up = 0 if timed_out else self._hung_up + 1
        return self._hung_up % (MAX_QUICK + 1) in (0, MAX_QUICK)

    def _note_trouble(self, trouble: str) -> None:
        self._trouble = trouble

    def _on_message(self, client: mqtt.Client, userdata: Any, message: mqtt.MQTTMessage) -> None:
        small = len(message.payload) <= message_parts.SMALL_PAYLOAD
        if self._inbox.qsize() > (MAX_INBOX if small else MAX_LARGE):
            self.dropped += 1
            return
        try:
            whole = self._parts.take(message.topic, bytes(message.payload))
            if whole is not None:
                self._inbox.put(broker_link.Arrived(message.topic, whole, bool(message.retain)))
        except UnicodeDecodeError:
            self.dropped += 1

    def _on_subscribe(
        self, client: mqtt.Client, userdata: Any, mid: int, reasons: Any, properties: Any
    ) -> None:
        for reason in reasons:
            if reason.is_failure:
                self._inbox.put(broker_link.NotGranted(reason.value, str(reason)))
        if self._reports_subscribed:
            self._inbox.put(broker_link.Subscribed())

    def _on_publish(self, client: mqtt.Client, userdata: Any, mid: int, reason: Any, properties: Any) -> None:
        self._inbox.put(broker_link.Confirmed(mid))


class _ErrorLogger(logging.Logger):
    """Passes on paho's error messages; paho's log callback would also format every other message."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__("paho", logging.ERROR)
        self._report = report

    def handle(self, record: logging.LogRecord) -> None:
        self._report(record.getMessage())


def _spread_reconnects(client: mqtt.Client, longest_delay_s: float) -> None:
    """Add jitter, so that devices which lost the broker together do not reconnect together."""
    longest = longest_delay_s * random.uniform(0.5, 1.0)
    first = min(FIRST_DELAY_S * random.uniform(0.5, 1.5), longest)
    client.reconnect_delay_set(first, longest)  # type: ignore[arg-type]
