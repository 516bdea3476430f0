"""A device asks the authority for a certificate, and gets it."""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.messages.message import Message
from schemas.names import Digest, Name
from schemas.values import Pem


class CertificateRequest(Message):
    """A device asks the authority for a certificate of its key; `csr` is PEM (PKCS #10).

    With an enrolment code `proof` shows that the device holds it (`schemas.security.enrolment`); for the next
    certificate the device's own topic, which the broker keeps for it alone, is proof enough.
    """

    kind: Literal["certificate-request"] = "certificate-request"
    device: Name
    csr: Pem
    proof: Digest | None = None


class IssuedCertificate(Message):
    """The authority's answer: the certificate, PEM, and that of the authority which devices trust.

    `proof` answers a request's: whoever does not know the code cannot have made this.
    """

    kind: Literal["issued-certificate"] = "issued-certificate"
    device: Name
    certificate: Pem
    authority: Pem
    proof: Digest | None = None
    max_bytes: ClassVar[int] = 10 * 1024
