"""Fixed signing keys for the tests, and signed manifests, files and tasks."""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge_client.security.trusted_key import TrustedKey, fingerprint_of
from edge_server.security.signing_key import Signer
from schemas.messages import Task
from schemas.security.manifest import Manifest, content_digest, encode_manifest, manifest_path, spec_digest
from schemas.tensors.chunks import digest_of


def signer(number: int = 1) -> Signer:
    """The signing key of server `number`."""
    key = Ed25519PrivateKey.from_private_bytes(bytes([number] * 32))
    return Signer(key, fingerprint_of(key.public_key()))


SERVER, STRANGER = signer(1), signer(2)
TRUSTED = TrustedKey(SERVER.fingerprint, SERVER.key.public_key())


def manifest_of(data: bytes, **more: Any) -> Manifest:
    """The manifest of a tier's export."""
    named = {"federation": "home", "run": "run-1", "round": 3, "tier": 2, "ratio": "0.5", "issued_at": 1000}
    return Manifest.model_validate({"what": "tier-export", **named, "sha256": digest_of(data), **more})


def sign_file(path: Path, by: Signer = SERVER, **more: Any) -> Path:
    """Write a signed manifest next to a file and return its path."""
    manifest_file = manifest_path(path)
    manifest_file.write_bytes(encode_manifest(by.sign(manifest_of(path.read_bytes(), **more))))
    return manifest_file


def public_file(path: Path, of: Signer = SERVER) -> Path:
    """Write a public key."""
    path.write_text(of.public_text)
    return path


def signed_task(task: Task, device: str, *, by: Signer = SERVER, **more: Any) -> Task:
    """A task with a signed manifest; `more` overrides manifest fields."""
    fields = {
        "what": "task",
        "federation": task.federation,
        "run": task.run,
        "round": task.round,
        "attempt": task.attempt,
        "device": device,
        "sha256": content_digest(task),
        "spec_sha256": spec_digest(task.spec),
        "issued_at": 1000,
        **more,
    }
    return task.model_copy(update={"manifest": by.sign(Manifest.model_validate(fields))})
