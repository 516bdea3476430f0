"""The service's connection to the broker of one federation."""

import logging
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge_client.transport.link_events import Arrived, Inbox, LinkDown, LinkUp, TaggedInbox
from edge_server.fleet.part import Heard
from edge_server.fleet.settings.service import ServedFederation
from edge_server.transport.broker_connection import BrokerConnection, check_sender
from schemas.errors import PeerError
from schemas.messages import Birth, Death, Message, Refusal, Telemetry, decode_message, encode_message
from schemas.messages.blobs import UNKNOWN_DIGEST
from schemas.topics import Channel, DeviceTopic, SiteTopic, device_topic, fleet_filters
from schemas.values import Reason

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FromBroker:
    """Event: the link of a federation reports `event`."""

    federation: str
    event: Any


class FederationLink:
    """Hears the devices of a federation, and publishes to them."""

    def __init__(self, served: ServedFederation, inbox: Inbox) -> None:
        self.name = served.name
        self._sites: dict[str, str] = {}
        self.connection = BrokerConnection(
            served.address(),
            TaggedInbox(inbox, partial(FromBroker, served.name)),  # type: ignore[arg-type]
            federation=served.name,
            role="fleet",
            filters=fleet_filters(served.name),
        )

    def open(self) -> None:
        self.connection.link.open()

    def close(self) -> None:
        self.connection.link.close()

    def tick(self) -> None:
        """Go on with the test of which message sizes the broker accepts."""
        self.connection.echo.tick(time.monotonic())

    def publish(self, device: str, message: Message) -> None:
        topic = device_topic(self.name, device, Channel.DOWN_FLEET, self._sites.get(device, ""))
        self.connection.link.publish(str(topic), encode_message(message))

    def retain(self, topic: str, payload: bytes) -> None:
        self.connection.link.publish(topic, payload, retain=True)

    def receive(self, event: LinkUp | LinkDown | Arrived) -> Heard | None:
        """Handle an event of the link; returns what a device said. Raises `PeerError`."""
        arrived = self.connection.receive(event, time.monotonic())
        if arrived is None or not arrived[1]:
            return None
        topic, payload = arrived
        # Of the claims and requests that devices send to the server only telemetry is of interest.
        if topic.channel is Channel.UP and b'"telemetry"' not in payload[:40]:
            self._answer(topic, payload)
            return None
        return self._parse_message(topic, payload)

    def _answer(self, topic: DeviceTopic | SiteTopic, payload: bytes) -> None:
        """Answer a device that asks whether anybody is there, which it does where no server has answered."""
        if isinstance(topic, DeviceTopic) and UNKNOWN_DIGEST.encode() in payload:
            answer = Refusal(
                federation=self.name, device=topic.device, digest=UNKNOWN_DIGEST, reason=Reason.UNKNOWN_BLOB
            )
            self.publish(topic.device, answer)

    def _parse_message(self, topic: DeviceTopic | SiteTopic, payload: bytes) -> Heard | None:
        message = decode_message(payload, federation=self.name)
        if not topic.device:
            raise PeerError(f"nothing is expected on {topic}")
        if topic.channel is not Channel.UP_FLEET and not isinstance(message, Birth | Death | Telemetry):
            return None
        check_sender(topic, kind=message.kind, device=str(getattr(message, "device", "")))
        site = topic.site if isinstance(topic, SiteTopic) else ""
        if site:
            self._sites[topic.device] = site
        else:
            self._sites.pop(topic.device, None)
        return Heard(self.name, topic.device, message, site)
