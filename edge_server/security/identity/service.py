"""`edge-server enroll --serve`: answers requests for certificates over the broker.

A separate process, not a part of `edge-server run`: the authority's key is never in the process that reads
devices' data, and devices can enrol and renew whether or not a run is in progress.
"""

import logging
import queue
from dataclasses import dataclass

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.link_events import Arrived, Inbox, LinkDown, LinkUp
from edge_client.transport.mqtt_client import Link
from edge_server.security.identity import mosquitto
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.registration import RegistrationAuthority
from schemas.errors import PeerError
from schemas.messages import encode_message
from schemas.topics import authority_filters

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stop:
    """Event: the user stops the service."""


class RegistrationService:
    """Answers until it is stopped."""

    def __init__(self, authority: Authority, address: BrokerAddress) -> None:
        self._address, self._registration = address, RegistrationAuthority(authority)
        self.inbox: Inbox = queue.SimpleQueue()
        filters = authority_filters(authority.settings.federation)
        self._link = Link(address, self.inbox, client_id=mosquitto.SERVICE, filters=filters)

    def run(self) -> None:
        """Serve until stopped; lost connections to the broker are re-established."""
        self._link.open()
        try:
            while not isinstance(event := self.inbox.get(), Stop):
                self._handle(event)
        finally:
            self._link.close()

    def stop(self) -> None:
        """Stop soon; safe in a signal handler or another thread."""
        self.inbox.put(Stop())

    def _handle(self, event: object) -> None:
        match event:
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case LinkUp():
                log.info("answering at %s", self._address)
                self._link.handle(event)
            case LinkDown(reason):
                log.warning("no connection to %s: %s; trying again", self._address, reason)
                self._link.handle(event)

    def _arrived(self, topic: str, payload: bytes) -> None:
        try:
            back, message = self._registration.answer(topic, payload)
        except PeerError as error:
            log.warning("ignored (%s): %s", error.reason, error, extra={"reason": error.reason})
            return
        self._link.publish(str(back), encode_message(message))
