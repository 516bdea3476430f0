"""Redeems an enrolment code: makes a key and requests its certificate over the broker."""

import logging
import queue
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from edge_client.security.identity import enrolment_bundle
from edge_client.security.identity.certificates import fingerprint, is_issued_by, request_pem
from edge_client.security.identity.key_pair import CertificateFiles
from edge_client.security.identity.private_files import private_folder, write_private
from edge_client.security.identity.validity import Validity, format_utc
from edge_client.transport.broker_link import Arrived, Inbox, LinkDown, LinkUp, TlsFiles, parse_address
from edge_client.transport.mqtt_client import Link
from schemas import errors, topics
from schemas.messages import CertificateRequest, IssuedCertificate, Refusal, decode_message, encode_message
from schemas.security.enrolment import EnrolmentCode, answer_proof, proof_key, proves, request_proof

log = logging.getLogger(__name__)

RETRY_S = 10.0
NO_ANSWER = "nobody answers: does `edge-server enroll --serve` run on the server?"


def check_code(code: EnrolmentCode, now: float, *, trusted: str | None = None) -> None:
    """Raise `ConfigError` for an expired code, or one of an authority without the `trusted` fingerprint."""
    if now >= code.expires:
        remedy = f"`edge-server enroll {code.device} --code` on the server gives a new one"
        raise errors.ConfigError(f"the code has expired on {format_utc(code.expires)}", remedy=remedy)
    authority = fingerprint(x509.load_pem_x509_certificate(code.authority.encode()))
    if trusted is not None and trusted.replace(":", "").lower() != authority:
        raise errors.ConfigError(f"the code's authority has the fingerprint {authority}, not {trusted}")


def redeem(
    code: EnrolmentCode,
    out: Path,
    *,
    broker: str | None = None,
    deadline_s: float = 60.0,
    report: Callable[[str], None] = log.info,
    data: str | None = None,
) -> Validity:
    """Get the certificate and write the files for `edge-client run` to `out`; raises `EdgeError` on failure.

    `broker` replaces the address in the code; `report` receives progress messages. `data` is the data source
    in `client.toml`; without it the device's owner must set it.
    """
    pair = CertificateFiles(private_folder(out) / enrolment_bundle.CERTIFICATE, out / enrolment_bundle.KEY)
    request = _request(code, pair)
    issued = _exchange(code, request, broker or code.door, deadline_s, report)
    check_answer(code, request, issued)
    write_private(out / enrolment_bundle.CA, code.authority.encode())
    if code.trust:
        write_private(out / enrolment_bundle.TRUST, code.trust.encode())
    texts = enrolment_bundle.board_files(
        broker=code.broker, federation=code.federation, device=code.device, trusts=bool(code.trust), data=data
    )
    enrolment_bundle.write_board_files(out, texts)
    return pair.replace(issued.certificate, name=code.device, authorities=code.authority.encode())


def _request(code: EnrolmentCode, pair: CertificateFiles) -> CertificateRequest:
    csr = request_pem(pair.next_key(), code.device)
    key = proof_key(code.secret, code.id)
    proof = request_proof(key, federation=code.federation, device=code.device, csr=csr)
    return CertificateRequest(federation=code.federation, device=code.device, csr=csr, proof=proof)


def check_answer(code: EnrolmentCode, request: CertificateRequest, issued: IssuedCertificate) -> None:
    """Raise `PeerError` unless the answer proves knowledge of the code and names its authority."""
    expected = answer_proof(
        proof_key(code.secret, code.id),
        federation=code.federation,
        csr=request.csr,
        certificate=issued.certificate,
        authority=issued.authority,
    )
    if proves(expected, issued.proof) and issued.authority == code.authority:
        return
    if _is_for_another_key(code, request, issued):
        raise errors.EdgeError(
            f"another client has used this code for {code.device}; `edge-server devices` says whether it is "
            f"yours, `edge-server enroll {code.device} --code` gives a new one"
        )
    raise errors.PeerError("the answer is not from the server that issued the code")


def _is_for_another_key(code: EnrolmentCode, request: CertificateRequest, issued: IssuedCertificate) -> bool:
    """Whether the code's authority has certified another key than the request's."""
    authority = x509.load_pem_x509_certificate(code.authority.encode())
    asked = x509.load_pem_x509_csr(request.csr.encode())
    try:
        certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
    except ValueError:
        return False
    return is_issued_by(certificate, authority) and certificate.public_key() != asked.public_key()


def _exchange(
    code: EnrolmentCode,
    request: CertificateRequest,
    broker: str,
    deadline_s: float,
    report: Callable[[str], None],
) -> IssuedCertificate:
    inbox: Inbox = queue.SimpleQueue()
    report(f"connecting to {broker}, for {deadline_s:.0f} s at most")
    with tempfile.TemporaryDirectory(prefix="edge-enrol-") as folder:
        # The certificate and key of the code itself.
        files = {"ca": code.authority, "certificate": code.certificate, "key": code.key}
        for name, text in files.items():
            write_private(Path(folder) / name, text.encode())
        address = parse_address(broker, TlsFiles(*(Path(folder) / name for name in files)))
        answers = topics.EnrolTopic(code.federation, code.id, "answer").within
        link = Link(address, inbox, client_id=code.id, filters=(answers,))
        link.open()
        try:
            return _ask(link, inbox, code, request, deadline_s, report)
        finally:
            link.close()


def _ask(
    link: Link,
    inbox: Inbox,
    code: EnrolmentCode,
    request: CertificateRequest,
    deadline_s: float,
    report: Callable[[str], None],
) -> IssuedCertificate:
    """Publish the request at each connection and every `RETRY_S` seconds until an answer arrives."""
    topic, payload = topics.EnrolTopic(code.federation, code.id, "request").within, encode_message(request)
    until, problem = time.monotonic() + deadline_s, NO_ANSWER
    while (left := until - time.monotonic()) > 0:
        try:
            event = inbox.get(timeout=min(left, RETRY_S))
        except queue.Empty:
            report(f"{problem}; waiting for another {left:.0f} s at most")
            link.publish(topic, payload)
            continue
        match event:
            case LinkUp():
                problem = NO_ANSWER
                report("connected, waiting for the certificate")
                link.publish(topic, payload)
            case LinkDown(reason):
                if reason != problem:
                    report(f"{reason}; trying again")
                problem = reason
            case Arrived(_, answer):
                return _read(answer, code)
    raise errors.EdgeError(f"no certificate after {deadline_s:.0f} s: {problem}")


def _read(answer: bytes, code: EnrolmentCode) -> IssuedCertificate:
    message = decode_message(answer, federation=code.federation)
    if isinstance(message, Refusal):
        raise errors.EdgeError(f"refused ({message.reason}): {message.detail}")
    if not isinstance(message, IssuedCertificate):
        raise errors.PeerError(f"'{message.kind}' is not an answer to a request for a certificate")
    return message
