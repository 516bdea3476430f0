"""The server's Ed25519 key: load or make it, show its public half, sign manifests."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from edge_client.security.trusted_key import fingerprint_of
from schemas.errors import ConfigError
from schemas.security.manifest import Manifest, SignedManifest, signed_bytes

OTHERS = 0o077
REMEDY = "name another path, and a key is made there"


@dataclass(frozen=True, eq=False)
class Signer:
    """A signing key; manifests name it by its `fingerprint`."""

    key: Ed25519PrivateKey
    fingerprint: str

    def sign(self, manifest: Manifest) -> SignedManifest:
        """The signed manifest; signatures are deterministic."""
        signature = self.key.sign(signed_bytes(manifest)).hex()
        return SignedManifest(manifest=manifest, key=self.fingerprint, signature=signature)

    @property
    def public_text(self) -> str:
        """The public key in PEM, for the devices' option `--trust`."""
        public = self.key.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def load_or_make_signing_key(path: Path) -> Signer:
    """The key at `path`, made (mode 0600) if missing; raises `ConfigError` for other files."""
    try:
        if not path.exists():
            _make(path)
        if path.stat().st_mode & OTHERS:
            raise ConfigError(
                "others may read or write it", place=f"signing key {path}", remedy=f"chmod 600 {path}"
            )
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(str(error.strerror), place=f"signing key {path}") from error
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            "no private key in PEM without password", place=f"signing key {path}", remedy=REMEDY
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError("not an Ed25519 key", place=f"signing key {path}", remedy=REMEDY)
    return Signer(key, fingerprint_of(key.public_key()))


def public_key_text(path: Path) -> str:
    """The public half, in PEM, of the signing key at `path`, made if missing."""
    return load_or_make_signing_key(path).public_text


def generate_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.generate()


def _make(path: Path) -> None:
    """Write a new key at `path` atomically; if another process was first, its key is used."""
    data = generate_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return
    finally:
        temporary.unlink(missing_ok=True)
