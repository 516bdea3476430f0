"""A device's certificate and key on disk (mode 0600), replaced together.

The next key and its certificate are first written to `.next` files. From the moment that the certificate's
`.next` file exists, `complete` finishes a replacement that a crash has interrupted.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from edge_client.security.identity import certificates, private_files
from edge_client.security.identity.validity import Validity, format_utc
from edge_client.storage.atomic_files import put_in_place
from edge_client.transport.broker_link import TlsFiles
from schemas.errors import ConfigError, PeerError

log = logging.getLogger(__name__)


def check_files(files: TlsFiles, device: str, now: float) -> None:
    """Warn of a key that others may read; raise `ConfigError` for an invalid certificate."""
    if files.key is not None and private_files.is_open_to_others(files.key):
        log.warning("others may read the private key %s: chmod 600 %s", files.key, files.key)
    if files.certificate is None:
        return
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"no certificate can be read there: {error}", key=f"--cert {files.certificate}"
        ) from error
    check_validity(certificates.validity_of(certificate), str(files.certificate), device, now)
    name = certificates.common_name(certificate)
    if name != device:
        raise ConfigError(
            f"--cert {files.certificate} is for '{name}', but the device is '{device}': the broker would"
            f" let it use the topics of '{name}' only",
            remedy=f"use --device-id {name}",
        )


def check_validity(validity: Validity, path: str, device: str, now: float) -> None:
    """Raise `ConfigError` unless `now`, in seconds since 1970, is within the validity."""
    if now >= validity.not_after:
        raise ConfigError(
            f"--cert {path} expired on {format_utc(validity.not_after)}",
            remedy=f"on the server, `edge-server enroll {device} --renew --out DIR` makes a new one",
        )
    if now < validity.not_before:
        raise ConfigError(
            f"--cert {path} is valid from {format_utc(validity.not_before)} on, and this machine's clock "
            f"says {format_utc(now)}",
            remedy="set the clock",
        )


@dataclass(frozen=True)
class CertificateFiles:
    """The paths of a certificate and its private key."""

    certificate: Path
    key: Path

    @property
    def _next_certificate(self) -> Path:
        return self.certificate.with_name(self.certificate.name + ".next")

    @property
    def _next_key(self) -> Path:
        return self.key.with_name(self.key.name + ".next")

    def validity(self) -> Validity:
        return certificates.validity_of(x509.load_pem_x509_certificate(self.certificate.read_bytes()))

    def next_key(self) -> ec.EllipticCurvePrivateKey:
        """The key to request a certificate for: the same, also after a restart, until one is issued."""
        try:
            return certificates.load_key(self._next_key.read_bytes())
        except (OSError, ValueError):
            key = certificates.new_key()
            private_files.write_private(self._next_key, certificates.key_pem(key))
            return key

    def replace(self, certificate: str, *, name: str, authorities: bytes) -> Validity:
        """Install the certificate of the next key.

        Raises `PeerError` for another key, another name, or if none of `authorities` (PEM) has signed it.
        """
        loaded = certificates.read_issued(certificate, authorities=authorities)
        if not certificates.has_key(loaded, self.next_key()) or certificates.common_name(loaded) != name:
            raise PeerError(f"the certificate is for another key, or not for {name}")
        private_files.write_private(self._next_certificate, certificate.encode())
        self.complete()
        return certificates.validity_of(loaded)

    def complete(self) -> None:
        if self._next_certificate.exists():
            if self._next_key.exists():
                put_in_place(self._next_key, self.key)
            put_in_place(self._next_certificate, self.certificate)
