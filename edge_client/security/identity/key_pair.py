"""A device's certificate and key on disk: replaced together, whole at any time, 0600.

The next key is made beside the one in use. Its certificate is first written aside too: from then on the
change counts, and whoever comes next completes what a crash has cut short.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from edge_client.security.identity.certificates import (
    belongs,
    common_name,
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
class Pair:
    """Where the certificate and its key lie."""

    certificate: Path
    key: Path

    @property
    def _next_certificate(self) -> Path:
        return self.certificate.with_name(self.certificate.name + ".next")

    @property
    def _next_key(self) -> Path:
        return self.key.with_name(self.key.name + ".next")

    def validity(self) -> Validity:
        """Of the certificate in use."""
        return validity_of(x509.load_pem_x509_certificate(self.certificate.read_bytes()))

    def next_key(self) -> ec.EllipticCurvePrivateKey:
        """The key to ask a certificate for: the same until there is one, also after a restart."""
        try:
            return load_key(self._next_key.read_bytes())
        except (OSError, ValueError):
            key = new_key()
            write_private(self._next_key, key_pem(key))
            return key

    def replace(self, certificate: str, *, name: str, authorities: bytes) -> Validity:
        """Use this certificate and its key from now on.

        Raises `PeerError` if it is not of the next key, not of that name, or of none of these authorities
        (PEM).
        """
        loaded = read_issued(certificate, authorities=authorities)
        if not belongs(loaded, self.next_key()) or common_name(loaded) != name:
            raise PeerError(f"a certificate of another key, or not of {name}")
        write_private(self._next_certificate, certificate.encode())
        self.complete()
        return validity_of(loaded)

    def complete(self) -> None:
        """Finish a replacement that was cut short; without one nothing changes."""
        if self._next_certificate.exists():
            if self._next_key.exists():
                put_in_place(self._next_key, self.key)
            put_in_place(self._next_certificate, self.certificate)
