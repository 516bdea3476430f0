"""Private keys (EC P-256, PKCS #8), certificate requests (PKCS #10) and certificates, in PEM."""

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge_client.security.identity.validity import Validity
from schemas.errors import PeerError


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The private key in PEM, unencrypted: the device needs it without a password."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Parse a private key; raises `ValueError` unless it is on an elliptic curve."""
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not a key on an elliptic curve")
    return key


def request_pem(key: ec.EllipticCurvePrivateKey, name: str) -> str:
    """A certificate request for this key with `name` as common name (CN)."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM).decode()


def common_name(certificate: x509.Certificate) -> str:
    """The common name (CN), which is the user name at the broker; empty without one."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def read_issued(pem: str, *, authorities: bytes) -> x509.Certificate:
    """Parse an issued certificate; raises `PeerError` unless one of these authorities signed it."""
    try:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        known = x509.load_pem_x509_certificates(authorities)
        validity_of(certificate)
        certificate.public_key()
    except (ValueError, TypeError, OverflowError, UnsupportedAlgorithm) as error:
        raise PeerError(f"no certificate: {str(error)[:80]}") from error
    if not any(is_issued_by(certificate, authority) for authority in known):
        raise PeerError("the certificate is not signed by a trusted authority")
    return certificate


def validity_of(certificate: x509.Certificate) -> Validity:
    return Validity(certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())


def has_key(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bool:
    return certificate.public_key() == key.public_key()


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def fingerprint(certificate: x509.Certificate) -> str:
    """The certificate's sha256 in hex: `openssl x509 -fingerprint -sha256` without colons."""
    return certificate.fingerprint(hashes.SHA256()).hex()
