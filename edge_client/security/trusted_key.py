"""The server's public key that a device trusts, and the check of signatures.

`cryptography`, from the extra `trust`, is imported only if a key is configured.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError, PeerError, Reason
from schemas.security.manifest import Manifest, SignedManifest, decode_manifest, manifest_path, signed_bytes

REMEDY = "pip install 'edge-federation[trust]'"


@dataclass(frozen=True, eq=False)
class TrustedKey:
    """A server's public key; `fingerprint` is the sha256 of its 32 raw bytes, in hex."""

    fingerprint: str
    public: Any

    def check(self, signed: SignedManifest) -> Manifest:
        """The manifest; raises `PeerError` with reason `make_untrusted_error` unless this key has signed
        it.
        """
        from cryptography.exceptions import InvalidSignature

        if signed.key != self.fingerprint:
            raise make_untrusted_error(
                f"signed with key {signed.key[:16]}..., trusted is {self.fingerprint[:16]}..."
            )
        try:
            self.public.verify(bytes.fromhex(signed.signature), signed_bytes(signed.manifest))
        except InvalidSignature:
            raise make_untrusted_error(
                "the signature does not match the manifest: one of them was altered"
            ) from None
        return signed.manifest


def make_untrusted_error(detail: str) -> PeerError:
    return PeerError(detail, reason=Reason.UNTRUSTED)


def read_trusted_key(path: Path) -> TrustedKey:
    """Read a public key in PEM, such as a run's `signing.pub`; raises `ConfigError` for anything else."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError as error:
        raise ConfigError("--trust needs the package cryptography", remedy=REMEDY) from error
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", key="--trust") from error
    if b"PRIVATE KEY" in data:
        raise ConfigError(
            f"{path} is a private key", key="--trust", remedy="give the public one, such as signing.pub"
        )
    try:
        public = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} is not a public key in PEM, such as signing.pub", key="--trust") from error
    if not isinstance(public, Ed25519PublicKey):
        raise ConfigError(f"{path} is not an Ed25519 key, such as the server's signing.pub", key="--trust")
    return TrustedKey(fingerprint_of(public), public)


def fingerprint_of(public: Any) -> str:
    """The sha256 of the key's 32 raw bytes in hex, as manifests name it."""
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()


def check_model(path: Path, data: bytes, key: TrustedKey, *, exported_by: str | None = None) -> Manifest:
    """The manifest of the model file at `path` with content `data`; `ConfigError` if it is not trusted.

    `exported_by` is the required exporter: a device's name, or `server`.
    """
    try:
        manifest = key.check(decode_manifest(manifest_path(path).read_bytes()))
        _check_file(manifest, data, exported_by)
    except OSError as error:
        missing = manifest_path(path).name
        remedy = "copy it together with the model from the server's run folder or the device's state folder"
        why = f"no signed manifest {missing} in its folder: {error.strerror}"
        raise ConfigError(why, place=path, remedy=remedy) from error
    except PeerError as error:
        remedy = "copy the model and its manifest again, or trust the key of the server that made them"
        raise ConfigError(f"{path} is not trusted: {error}", remedy=remedy) from error
    return manifest


def _check_file(manifest: Manifest, data: bytes, exported_by: str | None) -> None:
    if manifest.what not in ("tier-export", "device-export"):
        raise make_untrusted_error(f"the manifest is of a {manifest.what}, not of an ONNX file")
    digest = hashlib.sha256(data).hexdigest()
    if digest != manifest.sha256:
        raise make_untrusted_error(
            f"its sha256 is {digest[:16]}..., the manifest's {manifest.sha256[:16]}..."
        )
    # A device named `server` is not the server.
    by_server = manifest.what == "tier-export"
    required = by_server if exported_by == "server" else not by_server and manifest.device == exported_by
    if exported_by is not None and not required:
        by = "the server" if by_server else f"device {manifest.device}"
        raise make_untrusted_error(f"it was exported by {by}, required is {exported_by}")


# The check of a signed client release, before any of it is used.
def check_release(
    signed: SignedManifest,
    key: TrustedKey,
    *,
    sha256: str,
    federation: str | None = None,
    name: str | None = None,
) -> Manifest:
    """The manifest of the archive with this digest; raises `PeerError` with reason `untrusted`.

    `federation` and `name` are those that the manifest must have, if they are known.
    """
    manifest = key.check(signed)
    if manifest.what != "client-release":
        raise make_untrusted_error(f"what is signed is a {manifest.what}, not a client release")
    if manifest.sha256 != sha256:
        raise make_untrusted_error(
            f"the signature is for {manifest.sha256[:16]}..., the archive is {sha256[:16]}..."
        )
    if federation is not None and manifest.federation != federation:
        raise make_untrusted_error(
            f"the release was signed for federation {manifest.federation}, this is {federation}"
        )
    if name is not None and manifest.run != name:
        raise make_untrusted_error(f"the release was signed as {manifest.run}, not as {name}")
    return manifest
