"""Renews the device's certificate while the agent runs."""

import time
from typing import TYPE_CHECKING

from edge_client.agent.messenger import Messenger
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import AgentSettings
from edge_client.transport.link_events import Arrived, LinkUp
from edge_client.transport.mqtt_client import Link
from schemas.topics import EnrolTopic

if TYPE_CHECKING:
    from edge_client.security.identity.certificate_renewer import CertificateRenewer


class CertificateService(Service):
    """Connects the renewer to the agent's connection and messages."""

    def __init__(self, renewer: "CertificateRenewer", link: Link, messenger: Messenger) -> None:
        self._renewer, self._link, self._messenger = renewer, link, messenger

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._renewer.on_connected()

    def before_wait(self, session: Session) -> None:
        """Request a certificate when that is due; reconnect with a new one once the device is idle."""
        idle = session.phase is SessionPhase.IDLE
        self._renewer.turn(self._link, time.time(), connected=session.connected, idle=idle)

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        if not isinstance(topic, EnrolTopic):
            return False
        self._renewer.take(self._messenger.decode(arrived.payload))
        return True


def open_renewer(settings: AgentSettings) -> "CertificateRenewer | None":
    """The renewer of the device's certificate; without a certificate, `cryptography` is not imported."""
    if settings.address.tls is None or settings.address.tls.certificate is None:
        return None
    from edge_client.security.identity.certificate_renewer import make_renewer

    return make_renewer(settings.address.tls, federation=settings.federation, device=settings.device)
