"""Make and sign certificates (the authority's own, the broker's, clients') and the revocation list."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from edge_client.security.identity.certificates import new_key

MAX_BACKDATED_S = 3600.0
LIST_DAYS = 36_500
"""An expired revocation list locks every client out of Mosquitto, so it practically never expires."""


@dataclass(frozen=True)
class CertificateSigner:
    """A CA certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_signer(name: str, *, lifetime_s: float, now: float) -> CertificateSigner:
    key = new_key()
    usage = x509.BasicConstraints(ca=True, path_length=0)
    builder = _builder(name, key.public_key(), lifetime_s, now).issuer_name(_name(name))
    signing = _usage(key_cert_sign=True, crl_sign=True)
    builder = builder.add_extension(usage, critical=True).add_extension(signing, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    return CertificateSigner(builder.sign(key, hashes.SHA256()), key)


def client_certificate(
    signer: CertificateSigner, name: str, key: ec.EllipticCurvePublicKey, *, lifetime_s: float, now: float
) -> x509.Certificate:
    """A client certificate for `name`; it is not valid for a broker."""
    builder = _builder(name, key, lifetime_s, now)
    return _sign(signer, builder, ExtendedKeyUsageOID.CLIENT_AUTH)


def broker_certificate(
    signer: CertificateSigner,
    hosts: Sequence[str],
    key: ec.EllipticCurvePublicKey,
    *,
    lifetime_s: float,
    now: float,
) -> x509.Certificate:
    """A broker certificate for these host names and addresses."""
    names = x509.SubjectAlternativeName([_host(host) for host in hosts])
    builder = _builder(hosts[0][:64], key, lifetime_s, now).add_extension(names, critical=False)
    return _sign(signer, builder, ExtendedKeyUsageOID.SERVER_AUTH)


def revocation_list(signer: CertificateSigner, revoked: Iterable[tuple[int, float]], *, now: float) -> bytes:
    """The revocation list of (serial number, seconds since 1970), in PEM."""
    moment = datetime.fromtimestamp(now, UTC)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(signer.certificate.subject)
        .last_update(moment - timedelta(seconds=MAX_BACKDATED_S))
        .next_update(moment + timedelta(days=LIST_DAYS))
    )
    for serial, when in revoked:
        entry = x509.RevokedCertificateBuilder().serial_number(serial)
        entry = entry.revocation_date(datetime.fromtimestamp(when, UTC))
        builder = builder.add_revoked_certificate(entry.build())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    signed = builder.add_extension(authority, critical=False).sign(signer.key, hashes.SHA256())
    return signed.public_bytes(Encoding.PEM)


def _builder(
    name: str, key: ec.EllipticCurvePublicKey, lifetime_s: float, now: float
) -> x509.CertificateBuilder:
    """Valid from shortly before `now`, as a board's clock may be slow."""
    begin = datetime.fromtimestamp(now - min(MAX_BACKDATED_S, lifetime_s / 10), UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(datetime.fromtimestamp(now + lifetime_s, UTC))
    )


def _sign(
    signer: CertificateSigner, builder: x509.CertificateBuilder, use: x509.ObjectIdentifier
) -> x509.Certificate:
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    return (
        builder.issuer_name(signer.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
        .add_extension(authority, critical=False)
        .sign(signer.key, hashes.SHA256())
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(**uses: bool) -> x509.KeyUsage:
    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{use: uses.get(use, False) for use in every})
