"""Enrolment codes: one text that lets a device ask for its first certificate, once, until it expires.

A code holds a secret that never travels over the broker: both sides prove with it, by HMAC-SHA256, that they
know it, so whoever reads the exchange can neither use the code nor forge the answer. It also holds a
short-lived certificate that opens the broker's enrolment listener and nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import zlib
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from schemas.base import Frozen
from schemas.errors import ConfigError
from schemas.names import Digest, Name
from schemas.topics import CODE_ID_PATTERN
from schemas.values import Pem, Text

PREFIX = "edge1."
SECRET_BYTES = 32
MAX_CODE_CHARS, MAX_CONTENT_BYTES = 16_384, 32_768
CodeId = Annotated[str, StringConstraints(pattern=CODE_ID_PATTERN)]


class EnrolmentCode(Frozen):
    """What a code says: for which device, where to redeem it, until when (seconds since 1970), with what.

    `door` is the broker's enrolment listener, `broker` where the device connects ever after. `certificate`
    and `key` open the door; the device's own key is made on the device. `trust` is the content of the file
    that the device's `trust` names, empty without one.
    """

    federation: Name
    device: Name
    id: CodeId
    secret: Digest
    expires: int = Field(ge=0)
    door: Text
    broker: Text
    authority: Pem
    certificate: Pem
    key: Pem
    trust: Annotated[str, Field(max_length=4096)] = ""


def encode_code(code: EnrolmentCode) -> str:
    """One line of text, to be copied as a whole."""
    packed = zlib.compress(code.model_dump_json().encode(), 9)
    return PREFIX + base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_code(text: str) -> EnrolmentCode:
    """Read a code; raises `ConfigError` where it is none, or was cut."""
    word = "".join(text.split())
    if not word.startswith(PREFIX):
        raise ConfigError(f"this is no enrolment code: one begins with '{PREFIX}'")
    try:
        packed = base64.b64decode(_padded(word.removeprefix(PREFIX)), altchars=b"-_", validate=True)
        reader = zlib.decompressobj()
        content = reader.decompress(packed, MAX_CONTENT_BYTES)
        if not reader.eof or len(word) > MAX_CODE_CHARS:
            raise ValueError("cut or too long")
        return EnrolmentCode.model_validate_json(content)
    except (ValueError, binascii.Error, zlib.error, ValidationError) as error:
        raise ConfigError("the enrolment code is damaged: copy the whole line, or use its file") from error


def _padded(word: str) -> str:
    return word + "=" * (-len(word) % 4)


def proof_key(secret: str, code: str) -> bytes:
    """The key of both proofs, from a code's secret (hex, uniformly random) and its id."""
    return hmac.digest(
        bytes.fromhex(secret), b"edge-federation enrolment 1\0" + code.encode(), hashlib.sha256
    )


def request_proof(key: bytes, *, federation: str, device: str, csr: str) -> str:
    """That whoever made this request holds the code."""
    return _proof(key, "request", federation, device, csr)


def answer_proof(key: bytes, *, federation: str, csr: str, certificate: str, authority: str) -> str:
    """That whoever made this answer to that request holds the code."""
    return _proof(key, "answer", federation, csr, certificate, authority)


def proves(expected: str, given: str | None) -> bool:
    """Whether a proof is the expected one, in a time that tells nothing of it."""
    return hmac.compare_digest(expected.encode(), (given or "").encode())


def _proof(key: bytes, *parts: str) -> str:
    """Each part is digested first, so that none can reach into the next."""
    digests = b"".join(hashlib.sha256(part.encode()).digest() for part in parts)
    return hmac.new(key, digests, hashlib.sha256).hexdigest()
