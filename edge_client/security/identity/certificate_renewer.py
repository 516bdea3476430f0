"""Renews a running device's certificate: requests the next one and installs it."""

import logging
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from edge_client.security.identity.certificates import request_pem
from edge_client.security.identity.key_pair import CertificateFiles
from edge_client.security.identity.validity import Validity, format_utc, needs_renewal
from edge_client.transport.broker_link import TlsFiles
from schemas import errors, messages, topics

if TYPE_CHECKING:
    from edge_client.transport.mqtt_client import Link

log = logging.getLogger(__name__)


SHORTEST_RETRY_S, LONGEST_RETRY_S = 1.0, 3600.0
RETRIES_PER_LIFETIME = 100


class Due(StrEnum):
    """The next action."""

    NOTHING = "nothing"
    ASK = "ask"
    RECONNECT = "reconnect"


@dataclass(frozen=True)
class Renewal:
    """The certificate on disk; `waiting`: the connection still uses the previous one."""

    validity: Validity
    asked_at: float | None = None
    waiting: bool = False

    @property
    def retry_s(self) -> float:
        """Seconds before an unanswered request is repeated."""
        return min(max(self.validity.lifetime / RETRIES_PER_LIFETIME, SHORTEST_RETRY_S), LONGEST_RETRY_S)

    def due(self, now: float, *, connected: bool, idle: bool) -> Due:
        """The next action. Reconnecting waits for idle time: a task matters more than a day's delay."""
        if not connected:
            return Due.NOTHING
        if self.waiting and idle:
            return Due.RECONNECT
        unanswered = self.asked_at is not None and 0 <= now - self.asked_at < self.retry_s
        return Due.ASK if needs_renewal(self.validity, now) and not unanswered else Due.NOTHING

    def with_request(self, now: float) -> "Renewal":
        return replace(self, asked_at=now)

    def with_new_certificate(self, validity: Validity) -> "Renewal":
        return Renewal(validity, waiting=True)

    def with_connection(self) -> "Renewal":
        return replace(self, waiting=False)


class CertificateRenewer:
    """Renews one device's certificate, which `authorities` (PEM) may sign; not thread-safe."""

    def __init__(self, pair: CertificateFiles, *, authorities: bytes, federation: str, device: str) -> None:
        pair.complete()
        self._authorities = authorities
        self._pair, self._federation, self._device = pair, federation, device
        self._renewal = Renewal(pair.validity())

    @property
    def filters(self) -> tuple[str, ...]:
        return (str(topics.EnrolTopic(self._federation, self._device, "answer")),)

    @property
    def topic(self) -> str:
        return str(topics.EnrolTopic(self._federation, self._device, "request"))

    @property
    def valid_until(self) -> float:
        """Expiry of the certificate in seconds since 1970."""
        return self._renewal.validity.not_after

    def due(self, now: float, *, connected: bool, idle: bool) -> Due:
        return self._renewal.due(now, connected=connected, idle=idle)

    def request(self, now: float) -> messages.CertificateRequest:
        self._renewal = self._renewal.with_request(now)
        csr = request_pem(self._pair.next_key(), self._device)
        return messages.CertificateRequest(federation=self._federation, device=self._device, csr=csr)

    def turn(self, link: "Link", now: float, *, connected: bool, idle: bool) -> None:
        """Send a request or reconnect, if either is due."""
        try:
            match self.due(now, connected=connected, idle=idle):
                case Due.ASK:
                    link.publish(self.topic, messages.encode_message(self.request(now)))
                case Due.RECONNECT:
                    log.info("connecting again, with the new certificate")
                    self.on_connected()
                    link.reconnect()
                case Due.NOTHING:
                    pass
        except OSError as error:
            log.warning("the key of the next certificate cannot be written: %s", error)

    def take(self, answer: messages.AnyMessage) -> None:
        """Install an issued certificate; raises `PeerError` for other messages and wrong certificates."""
        match answer:
            case messages.IssuedCertificate() if answer.device == self._device:
                self._replace(answer.certificate)
            case messages.Refusal():
                about_it = {"reason": answer.reason}
                log.warning("no new certificate (%s): %s", answer.reason, answer.detail, extra=about_it)
            case _:
                raise errors.PeerError(f"'{answer.kind}' is not an answer to a request for a certificate")

    def _replace(self, certificate: str) -> None:
        try:
            validity = self._pair.replace(certificate, name=self._device, authorities=self._authorities)
        except OSError as error:
            log.warning("the new certificate cannot be written: %s", error)
            return
        self._renewal = self._renewal.with_new_certificate(validity)
        log.info("a new certificate, valid to %s", format_utc(validity.not_after))

    def on_connected(self) -> None:
        """Note that the connection uses the certificate on disk."""
        self._renewal = self._renewal.with_connection()


def make_renewer(tls: TlsFiles | None, *, federation: str, device: str) -> CertificateRenewer | None:
    """The renewer of a device's certificate; None without certificate, key and CA."""
    if tls is None or tls.ca is None or tls.certificate is None or tls.key is None:
        return None
    try:
        pair, authorities = CertificateFiles(tls.certificate, tls.key), tls.ca.read_bytes()
        return CertificateRenewer(pair, authorities=authorities, federation=federation, device=device)
    except (OSError, ValueError) as error:
        log.warning("%s will not be renewed automatically: %s", tls.certificate, error)
        return None
