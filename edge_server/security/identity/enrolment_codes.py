"""Enrolment codes at the authority: redeemed once, before they expire, with a limit on wrong attempts."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding
from pydantic import Field

from edge_client.security.identity import certificates, private_files
from edge_server.security.identity.authority import Authority
from edge_server.security.identity.certificates import client_certificate
from schemas import errors, messages, values
from schemas.base import Digest, Frozen, Name
from schemas.security.enrolment import SECRET_BYTES, CodeId, EnrolmentCode, proof_key, proves, request_proof

MAX_WRONG_TRIES = 5


class CodeRecord(Frozen):
    """The authority's record of a code: the key of its proofs, but not its secret.

    `certificate` is the one that was issued for it; the same key may fetch it again, as answers may be lost.
    """

    id: CodeId
    device: Name
    proof_key: Digest
    expires: float
    wrong_tries: int = Field(default=0, ge=0)
    certificate: values.Pem | None = None


@dataclass(frozen=True)
class JudgedCode:
    """A code after a request: its new record, and why the request is refused, if it is."""

    record: CodeRecord
    refused: str | None = None


def judge_code(record: CodeRecord, request: messages.CertificateRequest, now: float) -> JudgedCode:
    """Whether a request is entitled to a certificate; an earlier redemption is not considered here."""
    if record.wrong_tries >= MAX_WRONG_TRIES:
        return JudgedCode(record, "too many wrong tries")
    expected = request_proof(
        bytes.fromhex(record.proof_key), federation=request.federation, device=request.device, csr=request.csr
    )
    if not proves(expected, request.proof):
        tried = record.model_copy(update={"wrong_tries": record.wrong_tries + 1})
        return JudgedCode(tried, "the proof is wrong")
    if request.device != record.device:
        return JudgedCode(record, f"the code is for {record.device}")
    if now >= record.expires:
        return JudgedCode(record, "the code has expired")
    return JudgedCode(record)


def issue_code(authority: Authority, device: str, *, lifetime_s: float, trust: str = "") -> EnrolmentCode:
    identity, secret = f"~{secrets.token_hex(8)}", secrets.token_hex(SECRET_BYTES)
    key, now, settings = certificates.new_key(), authority.clock(), authority.settings
    opener = client_certificate(
        authority.enrolment_signer, identity, key.public_key(), lifetime_s=lifetime_s, now=now
    )
    code = EnrolmentCode(
        federation=settings.federation,
        device=device,
        id=identity,
        secret=secret,
        expires=int(now + lifetime_s),
        door=settings.enrolment_url,
        broker=settings.broker,
        authority=authority.ca_pem.decode(),
        certificate=opener.public_bytes(Encoding.PEM).decode(),
        key=certificates.key_pem(key).decode(),
        trust=trust,
    )
    kept = proof_key(secret, identity).hex()
    save_code(authority, CodeRecord(id=identity, device=device, proof_key=kept, expires=now + lifetime_s))
    return code


def find_code(authority: Authority, identity: str) -> CodeRecord:
    """A code's record; raises `PeerError` if there is none."""
    try:
        return CodeRecord.model_validate_json(_path(authority, identity).read_bytes())
    except FileNotFoundError:
        raise errors.PeerError(f"there is no code {identity}", reason=errors.Reason.NOT_ENTITLED) from None


def save_code(authority: Authority, record: CodeRecord) -> None:
    private_files.write_private(_path(authority, record.id), record.model_dump_json().encode())


def open_codes(authority: Authority) -> list[CodeRecord]:
    """The records of all codes that have not expired, redeemed ones included."""
    paths = sorted((authority.folder / "codes").glob("~*.json"))
    records = [CodeRecord.model_validate_json(path.read_bytes()) for path in paths]
    return [record for record in records if authority.clock() < record.expires]


def withdraw_codes(authority: Authority, device: str | None = None) -> int:
    """Delete a device's codes, or all expired ones; returns their number."""
    gone = 0
    for path in (authority.folder / "codes").glob("~*.json"):
        record = CodeRecord.model_validate_json(path.read_bytes())
        if record.device == device or (device is None and authority.clock() >= record.expires):
            path.unlink()
            gone += 1
    return gone


def _path(authority: Authority, identity: str) -> Path:
    return authority.folder / "codes" / f"{identity}.json"
