"""Redeem an enrolment code: the key is made here, its certificate comes over the broker."""

from __future__ import annotations

import logging
import queue
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from edge_client.security.identity.certificates import fingerprint, request_pem
from edge_client.security.identity.enrolment_bundle import (
    CA,
    CERTIFICATE,
    KEY,
    TRUST,
    board_files,
    write_board_files,
)
from edge_client.security.identity.key_pair import Pair
from edge_client.security.identity.private_files import private_folder, write_private
from edge_client.security.identity.validity import Validity, written
from edge_client.transport.broker_address import TlsFiles, parse_address
from edge_client.transport.link_events import Arrived, Inbox, LinkDown, LinkUp
from edge_client.transport.mqtt_client import Link
from schemas.errors import ConfigError, EdgeError, PeerError
from schemas.messages import CertificateRequest, IssuedCertificate, Refusal, decode_message, encode_message
from schemas.security.enrolment import EnrolmentCode, answer_proof, proof_key, proves, request_proof
from schemas.topics import EnrolTopic

log = logging.getLogger(__name__)

ASK_AGAIN_S = 10.0
NOBODY = "nobody answers: does `edge-server enroll --serve` run on the server?"


def check_code(code: EnrolmentCode, now: float, *, trusted: str | None = None) -> None:
    """Raise `ConfigError` for a code that is over, or not of the authority with that fingerprint."""
    if now >= code.expires:
        remedy = f"`edge-server enroll {code.device} --code` on the server gives a new one"
        raise ConfigError(f"the code has expired on {written(code.expires)}; {remedy}")
    authority = fingerprint(x509.load_pem_x509_certificate(code.authority.encode()))
    if trusted is not None and trusted.replace(":", "").lower() != authority:
        raise ConfigError(f"the code is of an authority with fingerprint {authority}, not {trusted}")


def redeem(
    code: EnrolmentCode,
    out: Path,
    *,
    door: str | None = None,
    deadline_s: float = 60.0,
    say: Callable[[str], None] = log.info,
    data: str | None = None,
) -> Validity:
    """Get the certificate and leave `out` ready for `edge-client run`; raises `EdgeError` where it cannot.

    `say` is called with what is waited for, each time that this changes, and with what is in the way. `data`
    is the source that its `client.toml` names; without it the device's owner must.
    """
    pair = Pair(private_folder(out) / CERTIFICATE, out / KEY)
    request = _request(code, pair)
    issued = _exchange(code, request, door or code.door, deadline_s, say)
    check_answer(code, request, issued)
    write_private(out / CA, code.authority.encode())
    if code.trust:
        write_private(out / TRUST, code.trust.encode())
    texts = board_files(
        broker=code.broker,
        federation=code.federation,
        device=code.device,
        trusts=bool(code.trust),
        data=data,
    )
    write_board_files(out, texts)
    return pair.replace(issued.certificate, name=code.device, authorities=code.authority.encode())


def _request(code: EnrolmentCode, pair: Pair) -> CertificateRequest:
    csr = request_pem(pair.next_key(), code.device)
    key = proof_key(code.secret, code.id)
    proof = request_proof(key, federation=code.federation, device=code.device, csr=csr)
    return CertificateRequest(federation=code.federation, device=code.device, csr=csr, proof=proof)


def check_answer(code: EnrolmentCode, request: CertificateRequest, issued: IssuedCertificate) -> None:
    """Raise `PeerError` unless the one who answers knows the code, and names the authority that it names."""
    expected = answer_proof(
        proof_key(code.secret, code.id),
        federation=code.federation,
        csr=request.csr,
        certificate=issued.certificate,
        authority=issued.authority,
    )
    if not proves(expected, issued.proof) or issued.authority != code.authority:
        raise PeerError("the answer is not of the one who gave out the code")


def _exchange(
    code: EnrolmentCode,
    request: CertificateRequest,
    door: str,
    deadline_s: float,
    say: Callable[[str], None],
) -> IssuedCertificate:
    inbox: Inbox = queue.SimpleQueue()
    say(f"connecting to {door}, for {deadline_s:.0f} s at most")
    with tempfile.TemporaryDirectory(prefix="edge-enrol-") as folder:
        address = parse_address(door, _opener(code, Path(folder)))
        answers = EnrolTopic(code.federation, code.id, "answer").within
        link = Link(address, inbox, client_id=code.id, filters=(answers,))
        link.open()
        try:
            return _ask(link, inbox, code, request, deadline_s, say)
        finally:
            link.close()


def _opener(code: EnrolmentCode, folder: Path) -> TlsFiles:
    """The code's own certificate, as files for as long as the exchange lasts."""
    files = TlsFiles(folder / "ca", folder / "certificate", folder / "key")
    write_private(folder / "ca", code.authority.encode())
    write_private(folder / "certificate", code.certificate.encode())
    write_private(folder / "key", code.key.encode())
    return files


def _ask(
    link: Link,
    inbox: Inbox,
    code: EnrolmentCode,
    request: CertificateRequest,
    deadline_s: float,
    say: Callable[[str], None],
) -> IssuedCertificate:
    """Ask, at each connection and now and then, until there is an answer."""
    topic, payload = EnrolTopic(code.federation, code.id, "request").within, encode_message(request)
    until, problem = time.monotonic() + deadline_s, NOBODY
    while (left := until - time.monotonic()) > 0:
        try:
            event = inbox.get(timeout=min(left, ASK_AGAIN_S))
        except queue.Empty:
            say(f"{problem}; waiting for another {left:.0f} s at most")
            link.publish(topic, payload)
            continue
        match event:
            case LinkUp():
                problem = NOBODY
                say("connected, waiting for the certificate")
                link.publish(topic, payload)
            case LinkDown(reason):
                if reason != problem:
                    say(f"{reason}; trying again")
                problem = reason
            case Arrived(_, answer):
                return _read(answer, code)
    raise EdgeError(f"no certificate after {deadline_s:.0f} s: {problem}")


def _read(answer: bytes, code: EnrolmentCode) -> IssuedCertificate:
    message = decode_message(answer, federation=code.federation)
    if isinstance(message, Refusal):
        raise EdgeError(f"refused ({message.reason}): {message.detail}")
    if not isinstance(message, IssuedCertificate):
        raise PeerError(f"'{message.kind}' is no answer to a request for a certificate")
    return message
