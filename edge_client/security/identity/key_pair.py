"""A device's certificate and key on disk (mode 0600), replaced together.

The next key and its certificate are first written to `.next` files. From the moment that the certificate's
`.next` file exists, `complete` finishes a replacement that a crash has interrupted.
"""

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from edge_client.security.identity.certificates import (
    common_name,
    has_key,
    key_pem,
    load_key,
    new_key,
    read_issued,
    validity_of,
)
from edge_client.security.identity.private_files import write_private
from edge_client.security.identity.validity import Validity
from edge_client.storage.atomic_files import put_in_place
from schemas.errors import PeerError


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
        return validity_of(x509.load_pem_x509_certificate(self.certificate.read_bytes()))

    def next_key(self) -> ec.EllipticCurvePrivateKey:
        """The key to request a certificate for: the same, also after a restart, until one is issued."""
        try:
            return load_key(self._next_key.read_bytes())
        except (OSError, ValueError):
            key = new_key()
            write_private(self._next_key, key_pem(key))
            return key

    def replace(self, certificate: str, *, name: str, authorities: bytes) -> Validity:
        """Install the certificate of the next key.

        Raises `PeerError` for another key, another name, or if none of `authorities` (PEM) has signed it.
        """
        loaded = read_issued(certificate, authorities=authorities)
        if not has_key(loaded, self.next_key()) or common_name(loaded) != name:
            raise PeerError(f"the certificate is for another key, or not for {name}")
        write_private(self._next_certificate, certificate.encode())
        self.complete()
        return validity_of(loaded)

    def complete(self) -> None:
        if self._next_certificate.exists():
            if self._next_key.exists():
                put_in_place(self._next_key, self.key)
            put_in_place(self._next_certificate, self.certificate)
