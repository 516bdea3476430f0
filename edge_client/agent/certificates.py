"""Renews the device's certificate while the agent runs."""

from __future__ import annotations

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
    from edge_client.security.identity.certificate_renewer import Keeper


class CertificateService(Service):
    """Lets the keeper of the certificate ask, take the answer and reconnect."""

    def __init__(self, keeper: Keeper, link: Link, messenger: Messenger) -> None:
        self._keeper, self._link, self._messenger = keeper, link, messenger

    def connected(self, up: LinkUp, now: float) -> None:
        self._keeper.connected()

    def before_wait(self, session: Session) -> None:
        """Request a certificate when that is due; reconnect with a new one as soon as no task is at hand."""
        idle = session.phase is SessionPhase.IDLE
        self._keeper.turn(self._link, time.time(), connected=session.connected, idle=idle)

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        if not isinstance(topic, EnrolTopic):
            return False
        self._keeper.take(self._messenger.decode(arrived.payload))
        return True


def open_keeper(settings: AgentSettings) -> Keeper | None:
    """The keeper of the device's certificate; a device without one need not import `cryptography`."""
    if settings.address.tls is None or settings.address.tls.certificate is None:
        return None
    from edge_client.security.identity.certificate_renewer import keeper_of

    return keeper_of(settings.address.tls, federation=settings.federation, device=settings.device)
