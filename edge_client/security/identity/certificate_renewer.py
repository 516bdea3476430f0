"""Keeps a running device's certificate fresh: decides with `renewal`, asks, and puts the answer in place."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from edge_client.security.identity.certificates import request_pem
from edge_client.security.identity.key_pair import Pair
from edge_client.security.identity.renewal import Due, Renewal
from edge_client.security.identity.validity import written
from edge_client.transport.broker_address import TlsFiles
from schemas.errors import PeerError
from schemas.messages import AnyMessage, CertificateRequest, IssuedCertificate, Refusal, encode_message
from schemas.topics import EnrolTopic

if TYPE_CHECKING:
    from edge_client.transport.mqtt_client import Link

log = logging.getLogger(__name__)


class Keeper:
    """Of one device, whose certificates these authorities (PEM) may sign; for the agent's thread alone."""

    def __init__(self, pair: Pair, *, authorities: bytes, federation: str, device: str) -> None:
        pair.complete()
        self._authorities = authorities
        self._pair, self._federation, self._device = pair, federation, device
        self._renewal = Renewal(pair.validity())

    @property
    def filters(self) -> tuple[str, ...]:
        """Where answers come."""
        return (str(EnrolTopic(self._federation, self._device, "answer")),)

    @property
    def topic(self) -> str:
        """Where requests go."""
        return str(EnrolTopic(self._federation, self._device, "request"))

    @property
    def valid_until(self) -> float:
        """When the certificate ends, in seconds since 1970."""
        return self._renewal.validity.not_after

    def due(self, now: float, *, connected: bool, idle: bool) -> Due:
        """What is to be done at this moment (seconds since 1970)."""
        return self._renewal.due(now, connected=connected, idle=idle)

    def request(self, now: float) -> CertificateRequest:
        """Ask for the next certificate."""
        self._renewal = self._renewal.asked(now)
        csr = request_pem(self._pair.next_key(), self._device)
        return CertificateRequest(federation=self._federation, device=self._device, csr=csr)

    def turn(self, link: Link, now: float, *, connected: bool, idle: bool) -> None:
        """Ask over the device's own link when it is time; connect again when nothing is under way."""
        try:
            match self.due(now, connected=connected, idle=idle):
                case Due.ASK:
                    link.publish(self.topic, encode_message(self.request(now)))
                case Due.RECONNECT:
                    log.info("connecting again, with the new certificate")
                    self.connected()
                    link.reconnect()
                case Due.NOTHING:
                    pass
        except OSError as error:
            log.warning("the next certificate's key cannot be kept: %s", error)

    def take(self, answer: AnyMessage) -> None:
        """Put a new certificate in place; raises `PeerError` for what is none of ours."""
        match answer:
            case IssuedCertificate() if answer.device == self._device:
                self._replace(answer.certificate)
            case Refusal():
                about_it = {"reason": answer.reason}
                log.warning("no new certificate (%s): %s", answer.reason, answer.detail, extra=about_it)
            case _:
                raise PeerError(f"'{answer.kind}' is no answer to a request for a certificate")

    def _replace(self, certificate: str) -> None:
        try:
            validity = self._pair.replace(certificate, name=self._device, authorities=self._authorities)
        except OSError as error:
            log.warning("the new certificate cannot be kept: %s", error)
            return
        self._renewal = self._renewal.renewed(validity)
        log.info("a new certificate, valid to %s", written(validity.not_after))

    def connected(self) -> None:
        """A connection was made with what lies on disk."""
        self._renewal = self._renewal.connected()


def keeper_of(tls: TlsFiles | None, *, federation: str, device: str) -> Keeper | None:
    """The keeper of a device that has a certificate of an authority of one's own; None without."""
    if tls is None or tls.ca is None or tls.certificate is None or tls.key is None:
        return None
    try:
        pair, authorities = Pair(tls.certificate, tls.key), tls.ca.read_bytes()
        return Keeper(pair, authorities=authorities, federation=federation, device=device)
    except (OSError, ValueError) as error:
        log.warning("%s will not be renewed by itself: %s", tls.certificate, error)
        return None
