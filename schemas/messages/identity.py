"""How a device obtains a certificate from the authority."""

from typing import ClassVar, Literal

from schemas.messages.message import Message
from schemas.names import Digest, Name
from schemas.values import Pem


class CertificateRequest(Message):
    """Request for a certificate of the device's key; `csr` is PEM (PKCS #10).

    `proof` shows that the device has an enrolment code (`schemas.security.enrolment`). A renewal needs none:
    the broker lets only the device itself publish to its topic.
    """

    kind: Literal["certificate-request"] = "certificate-request"
    device: Name
    csr: Pem
    proof: Digest | None = None


class IssuedCertificate(Message):
    """The authority's answer: the device's certificate and that of the authority, both PEM.

    `proof` answers the request's: only a holder of the enrolment code can compute it.
    """

    kind: Literal["issued-certificate"] = "issued-certificate"
    device: Name
    certificate: Pem
    authority: Pem
    proof: Digest | None = None
    max_bytes: ClassVar[int] = 10 * 1024
