"""Manifests: what the server signs. A manifest names bytes by their digest and says what they are.

The signature is over a prefix, unique to this use of the key, and the manifest in canonical JSON: sorted
keys, no spaces, ASCII, no fractions, so that each value has one spelling (as in TUF's canonical JSON). Key
order and spaces of a manifest on the wire or on disk therefore do not matter.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from schemas.base import Digest, Frozen, Name
from schemas.errors import PeerError, Reason
from schemas.submodel import SubModelSpec
from schemas.values import Attempt, RoundNumber

PREFIX = b"edge-federation manifest 1\n"
MAX_MANIFEST_BYTES = 4 * 1024
NOT_SIGNED = frozenset({"deadline_s", "addresses", "epoch", "manifest"})
"""Unsigned fields of a task: the time left, the addresses (see `schemas.messages.blobs`) and the epoch
differ in each repeat, and the manifest cannot sign itself."""

Kind = Literal["task", "model", "tier-export", "device-export", "client-release"]
SignatureText = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class Manifest(Frozen):
    """A statement about the bytes with digest `sha256`; `what` says which.

    - `task`: the server gave `device` this task. `sha256` is the task's `content_digest`, which covers the
      digests of its blobs.
    - `model`: the server made this version of the global model. `sha256` is that of its `manifest.json`.
    - `tier-export`: the server exported this ONNX file for that tier.
    - `device-export`: the server gave `device` the sub-model of `spec_sha256`, and `device` reports that it
      exported this ONNX file from it. The server has not seen the file and relies on the device.
    - `client-release`: the operator made this archive of wheels; `run` is the name of the release.

    `ratio` is decimal text. `parent_sha256` is the state of the global model that it was cut from.
    `issued_at` is the server's time in seconds since 1970; for a device's export, that of its task.
    """

    version: Literal[1] = 1
    what: Kind
    federation: Name
    run: Name
    round: RoundNumber
    attempt: Attempt | None = None
    device: Name | None = None
    tier: int | None = Field(default=None, ge=1)
    ratio: Annotated[str, Field(max_length=40)] | None = None
    sha256: Digest
    spec_sha256: Digest | None = None
    parent_sha256: Digest | None = None
    issued_at: int = Field(ge=0, le=10**11)


class SignedManifest(Frozen):
    """A manifest and its Ed25519 signature in hex; `key` is the sha256 of the raw public key."""

    manifest: Manifest
    key: Digest
    signature: SignatureText


def signed_bytes(manifest: Manifest) -> bytes:
    return PREFIX + canonical(manifest)


def canonical(value: Frozen, *, without: frozenset[str] = frozenset()) -> bytes:
    """Canonical JSON of a value without some of its fields."""
    fields = value.model_dump(mode="json", exclude=set(without))
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def content_digest(task: Frozen) -> str:
    """The sha256 of a task without the fields `NOT_SIGNED`.

    Fractions are spelled as in Python and JavaScript: the fewest digits that give the same number.
    """
    return hashlib.sha256(canonical(task, without=NOT_SIGNED)).hexdigest()


def spec_digest(spec: SubModelSpec) -> str:
    return hashlib.sha256(canonical(spec)).hexdigest()


def manifest_path(path: Path) -> Path:
    """Path of the signed manifest of the file at `path`, in the same folder."""
    return path.with_name(f"{path.name}.manifest.json")


def encode_manifest(signed: SignedManifest) -> bytes:
    return canonical(signed) + b"\n"


def decode_manifest(data: bytes) -> SignedManifest:
    """Decode a signed manifest without checking its signature; raises `PeerError` if it is not valid."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise PeerError(
            f"manifest of {len(data)} bytes exceeds {MAX_MANIFEST_BYTES}", reason=Reason.OVERSIZED
        )
    try:
        return SignedManifest.model_validate_json(data)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise PeerError(f"not a signed manifest: {where + ': ' if where else ''}{problem['msg']}") from error
