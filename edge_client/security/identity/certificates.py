"""Keys and requests as this project makes them (library `cryptography`): EC P-256, PEM, PKCS #8 and #10."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge_client.security.identity.validity import Validity
from schemas.errors import PeerError


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as it is kept: not encrypted, for whoever reads it runs as the device."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Read a private key; raises `ValueError` for anything but one on an elliptic curve."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key on an elliptic curve")
    return key


def request_pem(key: ec.EllipticCurvePrivateKey, name: str) -> str:
    """A request for a certificate of this key under that name (CN)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def common_name(certificate: x509.Certificate) -> str:
    """The name that the broker takes for the user's; empty where there is none."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def read_issued(pem: str, *, authorities: bytes) -> x509.Certificate:
    """Read a certificate that was sent here; raises `PeerError` unless one of these authorities signed it."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        known = x509.load_pem_x509_certificates(authorities)
        validity_of(certificate)
        certificate.public_key()
    except (ValueError, TypeError, OverflowError, UnsupportedAlgorithm) as error:
        raise PeerError(f"no certificate: {str(error)[:80]}") from error
    if not any(is_issued_by(certificate, authority) for authority in known):
        raise PeerError("the certificate is not signed by the authority that is trusted here")
    return certificate


def validity_of(certificate: x509.Certificate) -> Validity:
    """From when until when a certificate is good."""
    return Validity(certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())


def belongs(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    """Whether a certificate is of this key."""
    return certificate.public_key() == key.public_key()


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed this certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def fingerprint(certificate: x509.Certificate) -> str:
    """Its sha256 in hex, as `openssl x509 -fingerprint -sha256` prints it without colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()
