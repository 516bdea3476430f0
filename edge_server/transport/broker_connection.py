"""The connection of a server's process to the broker, and what the broker lets through."""

import os
from collections.abc import Callable, Iterable

from edge_client.transport import packet_size
from edge_client.transport.broker_link import Arrived, BrokerAddress, Inbox, LinkDown, LinkEvent, LinkUp
from edge_client.transport.mqtt_client import Link, Will
from schemas.errors import PeerError, Reason
from schemas.messages import BlobRequest, FromSite, Refusal, decode_message
from schemas.topics import DeviceTopic, Role, SiteTopic, echo_topic, parse_topic

Publish = Callable[[bytes], None]
"""At QoS 0: a packet for which the broker closes the connection must not be sent again on the next one."""
_NAME_BYTES = 8

LONGEST_DELAY_S = 2.0
"""Longest pause between two attempts to connect: there is one server, so it may try often."""


class EchoTest:
    """Measures once per process how large packets may be; raises `ConfigError` if no chunk size fits.

    It runs the state machine of `packet_size`: publishes its payloads and receives the echoes.
    """

    def __init__(self, topic: str, publish: Publish) -> None:
        self.topic, self._publish = topic, publish
        self._name = os.urandom(_NAME_BYTES)
        self._sizing: packet_size.Sizing | None = None

    @property
    def chunk_bytes(self) -> int | None:
        """The chunk size that works, in bytes; None while unknown."""
        return None if self._sizing is None else self._sizing.found

    @property
    def is_measured(self) -> bool:
        """Whether a message of that size came back."""
        return self._sizing is not None and self._sizing.measured

    def on_connected(self, up: LinkUp, now: float) -> None:
        """Begin or continue on a new connection; a size already found is kept if it fits."""
        before = self._sizing
        if before is None:
            self._advance(packet_size.begin(up.max_packet, now))
        elif before.found is None:
            self._advance(packet_size.again(before, up.max_packet, now))
        elif before.found not in packet_size.fitting(up.max_packet):
            self._advance(packet_size.begin(up.max_packet, now))

    def cut(self) -> None:
        if self._sizing is not None:
            self._sizing = packet_size.cut(self._sizing)

    def receive(self, topic: str, payload: bytes, now: float) -> bool:
        """Process a message; returns whether it came on the test's topic."""
        if topic != self.topic:
            return False
        if self._sizing is not None and payload.startswith(self._name):
            self._advance(packet_size.on_echo(self._sizing, len(payload), now))
        return True

    def tick(self, now: float) -> None:
        if self._sizing is not None:
            self._advance(packet_size.overdue(self._sizing, now))

    def _advance(self, sizing: packet_size.Sizing) -> None:
        before, self._sizing = self._sizing, sizing
        asked = None if before is None else (before.payload_bytes, before.until)
        if sizing.payload_bytes is not None and (sizing.payload_bytes, sizing.until) != asked:
            self._publish(self._name + bytes(sizing.payload_bytes - _NAME_BYTES))


class BrokerConnection:
    """One MQTT connection with its echo test; `role` names the client and its echo topic.

    `will` gives the retained last will of a session.
    """

    def __init__(
        self,
        address: BrokerAddress,
        inbox: Inbox,
        *,
        federation: str,
        role: Role,
        filters: Iterable[str],
        will: Will | None = None,
    ) -> None:
        echo = echo_topic(federation, role)
        self.address, self.session = address, 0
        self.trouble = f"connecting to {address}"
        self.link = Link(
            address,
            inbox,
            client_id=f"{federation}-{role}",
            filters=(*filters, echo),
            will=will,
            longest_delay_s=LONGEST_DELAY_S,
        )
        self.echo = EchoTest(echo, lambda payload: self.link.echo(echo, payload))

    @property
    def chunk_bytes(self) -> int | None:
        """The largest chunks that the broker passes on; None until the echo test has found out."""
        return self.echo.chunk_bytes

    def receive(self, event: LinkEvent, now: float) -> tuple[DeviceTopic | SiteTopic, bytes] | None:
        """Handle an event of the link; returns topic and payload of a device's or site's message, else None.

        Raises `PeerError` for a message on any other topic.
        """
        match event:
            case Arrived(topic, payload):
                return None if self.echo.receive(topic, payload, now) else (_device_topic(topic), payload)
            case LinkUp(session):
                self.trouble, self.session = "", session
                self.link.handle(event)
                self.echo.on_connected(event, now)
            case LinkDown(reason):
                self.trouble = f"no connection to {self.address}: {reason}; trying again"
                self.echo.cut()
                self.link.handle(event)
            case _:
                self.link.handle(event)
        return None


def _device_topic(topic: str) -> DeviceTopic | SiteTopic:
    parsed = parse_topic(topic)
    if not isinstance(parsed, DeviceTopic | SiteTopic):
        raise PeerError(f"nothing is expected on {topic}")
    return parsed


def read_of_site(site: str, payload: bytes, federation: str) -> FromSite:
    """A gateway's message about its site; raises `PeerError` for one about another."""
    message = decode_message(payload, federation=federation)
    if not isinstance(message, FromSite):
        raise PeerError(f"a gateway does not send '{message.kind}'", reason=Reason.UNKNOWN_KIND)
    named = message.device if isinstance(message, BlobRequest | Refusal) else message.site
    if named != site:
        raise PeerError(f"'{message.kind}' of {named} on the topic of {site}", reason=Reason.WRONG_SENDER)
    return message


def check_sender(topic: DeviceTopic | SiteTopic, *, kind: str, device: str) -> None:
    """Raise `PeerError` unless a message that names this `device` came on that device's topic."""
    if device != topic.device:
        detail = f"'{kind}' of {device} on the topic of {topic.device}"
        raise PeerError(detail, reason=Reason.WRONG_SENDER)
