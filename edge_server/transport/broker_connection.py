"""The connection of a server's process to the broker, and what the broker lets through."""

from collections.abc import Iterable

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.echo_test import EchoTest
from edge_client.transport.link_events import Arrived, Inbox, LinkDown, LinkEvent, LinkUp
from edge_client.transport.mqtt_client import Link, Will
from schemas.errors import PeerError
from schemas.topics import DeviceTopic, Role, SiteTopic, echo_topic, parse_topic
from schemas.values import Reason

LONGEST_DELAY_S = 2.0
"""Longest pause between two attempts to connect: there is one server, so it may try often."""


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


def check_sender(topic: DeviceTopic | SiteTopic, *, kind: str, device: str) -> None:
    """Raise `PeerError` unless a message that names this `device` came on that device's topic."""
    if device != topic.device:
        detail = f"'{kind}' of {device} on the topic of {topic.device}"
        raise PeerError(detail, reason=Reason.WRONG_SENDER)
