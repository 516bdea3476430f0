"""`edge-server enroll --serve`: answers requests for certificates over the broker.

A separate process, not a part of `edge-server run`: the authority's key is never in the process that reads
devices' data, and devices can enrol and renew whether or not a run is in progress.
"""

import logging
import queue
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from edge_client.transport import broker_link, mqtt_client
from edge_client.transport.event_loop import EventLoop, Stop
from edge_server.security.identity import enrolment_codes, mosquitto
from edge_server.security.identity.authority import Authority
from schemas import errors, topics
from schemas.errors import PeerError
from schemas.messages import CertificateRequest, IssuedCertificate, Refusal, decode_message, encode_message
from schemas.security.enrolment import answer_proof

log = logging.getLogger(__name__)


class RegistrationService:
    """Answers until it is stopped."""

    def __init__(self, authority: Authority, address: broker_link.BrokerAddress) -> None:
        self._address, self._registration = address, RegistrationAuthority(authority)
        self.inbox: broker_link.Inbox = queue.SimpleQueue()
        filters = topics.authority_filters(authority.settings.federation)
        self._link = mqtt_client.Link(address, self.inbox, client_id=mosquitto.SERVICE, filters=filters)
        self.loop = EventLoop(self.inbox, handle=self._handle)
        self._stopped = False

    def run(self) -> None:
        """Serve until stopped; lost connections to the broker are re-established."""
        self._link.open()
        try:
            self.loop.run(until=lambda: self._stopped)
        finally:
            self._link.close()

    def stop(self) -> None:
        """Stop soon; safe in a signal handler or another thread."""
        self.inbox.put(Stop())

    def _handle(self, event: object) -> None:
        match event:
            case Stop():
                self._stopped = True
            case broker_link.Arrived(topic, payload):
                back, message = self._registration.answer(topic, payload)
                self._link.publish(str(back), encode_message(message))
            case broker_link.LinkUp():
                log.info("answering at %s", self._address)
                self._link.handle(event)
            case broker_link.LinkDown(reason):
                log.warning("no connection to %s: %s; trying again", self._address, reason)
                self._link.handle(event)


# Answers requests for certificates; without sockets, so that tests can call it directly.
#
# A device's first request carries an enrolment code's proof and arrives through the broker's enrolment
# listener. Later requests arrive on the device's own topic, to which the broker lets no other client write,
# and need a certificate that is neither revoked nor expired. The same key gets the same certificate again, as
# answers may be lost.

MAX_VALID = 4  # Valid certificates per device: two during a renewal, and some for lost answers


class RegistrationAuthority:
    """Checks requests and lets the authority issue certificates."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._allowance = RequestAllowance()

    def answer(self, topic: str, payload: bytes) -> tuple[topics.EnrolTopic, IssuedCertificate | Refusal]:
        """The answer and its topic; raises `PeerError` for messages that get no answer."""
        where = topics.parse_topic(topic)
        if not isinstance(where, topics.EnrolTopic) or where.part != "request":
            raise PeerError(f"nothing is expected on {topic}")
        request = decode_message(payload, federation=self._authority.settings.federation)
        if not isinstance(request, CertificateRequest):
            raise PeerError(f"'{request.kind}' on {topic}", reason=errors.Reason.UNKNOWN_KIND)
        back = topics.EnrolTopic(where.federation, where.who, "answer")
        try:
            self._spend(where.who)
            with self._authority.lock_folder():
                return back, self._issue(where.who, request)
        except PeerError as error:
            fields = {"device": where.who, "reason": error.reason}
            log.warning("%s: refused (%s): %s", *fields.values(), error, extra=fields)
            return back, Refusal.of(error, request.federation, request.device)

    def _spend(self, who: str) -> None:
        left = self._allowance.spend(who, self._authority.clock())
        if left is None:
            raise PeerError("too many requests, try later", reason=errors.Reason.TOO_MANY_REQUESTS)
        self._allowance = left

    def _issue(self, who: str, request: CertificateRequest) -> IssuedCertificate:
        if topics.is_code_id(who):
            return self._redeem(who, request)
        if request.device != who:
            raise PeerError(f"{who} asks for {request.device}", reason=errors.Reason.WRONG_SENDER)
        return self._renew(request)

    def _redeem(self, who: str, request: CertificateRequest) -> IssuedCertificate:
        record = enrolment_codes.find_code(self._authority, who)
        judged = enrolment_codes.judge_code(record, request, self._authority.clock())
        if judged.record != record:
            enrolment_codes.save_code(self._authority, judged.record)
        if judged.refused is not None:
            raise PeerError(judged.refused, reason=errors.Reason.NOT_ENTITLED)
        key = requested_key(request)
        if record.certificate is None:
            made = self._authority.issue(record.device, key)
            record = record.model_copy(update={"certificate": _pem(made)})
            enrolment_codes.save_code(self._authority, record)
            log.info("%s: enrolled with code %s", record.device, who, extra={"device": record.device})
        assert record.certificate is not None
        certificate = x509.load_pem_x509_certificate(record.certificate.encode())
        if certificate.public_key() != key:
            raise PeerError("the code has been used", reason=errors.Reason.NOT_ENTITLED)
        issued = self._make_answer(request, certificate)
        proof = answer_proof(
            bytes.fromhex(record.proof_key),
            federation=request.federation,
            csr=request.csr,
            certificate=issued.certificate,
            authority=issued.authority,
        )
        return issued.model_copy(update={"proof": proof})

    def _renew(self, request: CertificateRequest) -> IssuedCertificate:
        key, held = requested_key(request), self._authority.certificates(request.device)
        if not held:
            raise PeerError(f"{request.device} is revoked or unknown", reason=errors.Reason.NOT_ENTITLED)
        for certificate in held:
            if certificate.public_key() == key:
                return self._make_answer(request, certificate)
        if len(held) >= MAX_VALID:
            raise PeerError(f"{len(held)} certificates are valid", reason=errors.Reason.TOO_MANY_REQUESTS)
        log.info("%s: certificate renewed", request.device, extra={"device": request.device})
        return self._make_answer(request, self._authority.issue(request.device, key))

    def _make_answer(self, request: CertificateRequest, certificate: x509.Certificate) -> IssuedCertificate:
        return IssuedCertificate(
            federation=request.federation,
            device=request.device,
            certificate=_pem(certificate),
            authority=self._authority.ca_pem.decode(),
        )


def requested_key(request: CertificateRequest) -> ec.EllipticCurvePublicKey:
    """The key of a request; raises `PeerError` unless it is signed by that key, in the device's name."""
    try:
        csr = x509.load_pem_x509_csr(request.csr.encode())
        key, sound = csr.public_key(), csr.is_signature_valid
        named = csr.subject.rfc4514_string() == f"CN={request.device}"
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise PeerError(f"not a certificate request: {str(error)[:80]}") from error
    if not sound or not named:
        raise PeerError(f"the request is not signed by its key, or not for {request.device}")
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise PeerError("the key is not an EC P-256 key")
    return key


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


MAX_REQUESTS = 8.0
REFILL_S = 15.0
MAX_SENDERS = 10_000


@dataclass(frozen=True)
class RequestAllowance:
    """For each sender the remaining requests, and when that was; `now` is any clock in seconds.

    The broker has authenticated the senders, so they cannot invent names.
    """

    left: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def spend(self, sender: str, now: float) -> "RequestAllowance | None":
        """Take one request; None if none is left."""
        left, since = self.left.get(sender, (MAX_REQUESTS, now))
        full = min(MAX_REQUESTS, left + (now - since) / REFILL_S)
        if full < 1:
            return None
        others = {name: about for name, about in self.left.items() if name != sender}
        if len(others) >= MAX_SENDERS:
            del others[next(iter(others))]
        return RequestAllowance({**others, sender: (full - 1, now)})
