"""Enrolment codes: a line of text with which a device requests its first certificate, once, until it expires.

The code has a secret that is never sent over the broker: each side proves by HMAC-SHA256 that it knows the
secret, so that a reader of the exchange can neither use the code nor forge the answer. The code also has a
short-lived certificate that is valid for the broker's enrolment listener only.
"""

import base64
import binascii
import hashlib
import hmac
import zlib
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from schemas import errors, topics, values
from schemas.base import Digest, Frozen, Name

PREFIX = "edge1."
SECRET_BYTES = 32
MAX_CODE_CHARS, MAX_CONTENT_BYTES = 16_384, 32_768
CodeId = Annotated[str, StringConstraints(pattern=topics.CODE_ID_PATTERN)]


class EnrolmentCode(Frozen):
    """The content of a code for one `device`; it `expires` in seconds since 1970.

    `door` is the address of the broker's enrolment listener, for which `certificate` and `key` are valid;
    `broker` is where the device connects afterwards, with a key made on the device. `trust` is the content of
    the file for the device's option `trust`; empty if there is none.
    """

    federation: Name
    device: Name
    id: CodeId
    secret: Digest
    expires: int = Field(ge=0)
    door: values.Text
    broker: values.Text
    authority: values.Pem
    certificate: values.Pem
    key: values.Pem
    trust: Annotated[str, Field(max_length=4096)] = ""


def encode_code(code: EnrolmentCode) -> str:
    packed = zlib.compress(code.model_dump_json().encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_code(text: str) -> EnrolmentCode:
    """Decode a code; raises `ConfigError` if it is invalid or incomplete."""
    line = "".join(text.split())
    if not line.startswith(PREFIX):
        raise errors.ConfigError(f"this is not an enrolment code: codes begin with '{PREFIX}'")
    try:
        body = line.removeprefix(PREFIX)
        packed = base64.b64decode(body + "=" * (-len(body) % 4), altchars=b"-_", validate=True)
        reader = zlib.decompressobj()
        content = reader.decompress(packed, MAX_CONTENT_BYTES)
        if not reader.eof or len(line) > MAX_CODE_CHARS:
            raise ValueError("cut or too long")
        return EnrolmentCode.model_validate_json(content)
    except (ValueError, binascii.Error, zlib.error, ValidationError) as error:
        raise errors.ConfigError(
            "the enrolment code is damaged", remedy="copy the whole line, or use its file"
        ) from error


def proof_key(secret: str, code: str) -> bytes:
    """The HMAC key of both proofs, from a code's secret (hex, uniformly random) and its id."""
    return hmac.digest(
        bytes.fromhex(secret), b"edge-federation enrolment 1\0" + code.encode(), hashlib.sha256
    )


def request_proof(key: bytes, *, federation: str, device: str, csr: str) -> str:
    """Proof that the sender of this request has the code."""
    return _proof(key, "request", federation, device, csr)


def answer_proof(key: bytes, *, federation: str, csr: str, certificate: str, authority: str) -> str:
    """Proof that the sender of this answer to the request `csr` has the code."""
    return _proof(key, "answer", federation, csr, certificate, authority)


def proves(expected: str, given: str | None) -> bool:
    """Whether a proof is the expected one, compared in constant time."""
    return hmac.compare_digest(expected.encode(), (given or "").encode())


def _proof(key: bytes, *parts: str) -> str:
    """HMAC over the digests of the parts, so that no part can extend into the next."""
    digests = b"".join(hashlib.sha256(part.encode()).digest() for part in parts)
    return hmac.new(key, digests, hashlib.sha256).hexdigest()
