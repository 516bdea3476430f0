"""What the server's signature is over: a manifest that names bytes by their digest and says what they are.

Signed are the canonical bytes of the manifest behind a prefix that no other use of the key has. Canonical is
JSON with sorted keys, without spaces, in ASCII, and without fractions: a number then has one spelling only
(as in TUF's canonical JSON). Key order and spaces of what travels or lies on a disk therefore do not matter.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationError

from schemas.base import Frozen
from schemas.errors import PeerError
from schemas.names import Digest, Name
from schemas.submodel import SubModelSpec
from schemas.values import Attempt, Reason, RoundNumber

PREFIX = b"edge-federation manifest 1\n"
MAX_MANIFEST_BYTES = 4 * 1024
NOT_SIGNED = frozenset({"deadline_s", "addresses", "manifest"})
"""Of a task: how much time is left, and which addresses are good for how long, differs in each repeat (see
`schemas.messages.object_store`), and the manifest cannot sign itself."""

Kind = Literal["task", "model", "tier-export", "device-export"]
SignatureText = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


class Manifest(Frozen):
    """What some bytes are; `sha256` names them, and what the signature vouches for depends on `what`.

    - `task`: the server gave `device` this task, with these blobs, this spec and this training plan.
      `sha256` is the task's (`content_digest`), blobs' digests and all.
    - `model`: the server made this version of the global model. `sha256` is that of its `manifest.json`.
    - `tier-export`: the server itself made this ONNX file of that tier.
    - `device-export`: the server gave `device` the sub-model of `spec_sha256`, and `device` says that this
      is the ONNX file which it made of it. The server has not seen the file: its worth is that of the device.

    `ratio` is decimal text; `parent_sha256` the state of the global model that it was cut from; `issued_at`
    the server's clock in seconds since 1970, of an export by a device that of its task.
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
    """What is signed."""
    return PREFIX + canonical(manifest)


def canonical(value: Frozen, *, without: frozenset[str] = frozenset()) -> bytes:
    """A value's one spelling as JSON, some of its own fields left out."""
    fields = value.model_dump(mode="json", exclude=set(without))
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def content_digest(task: Frozen) -> str:
    """The sha256 of a task as far as it is signed: everything but `NOT_SIGNED`.

    Its fractions are spelled as Python and JavaScript do, with the fewest digits that give the same number.
    """
    return hashlib.sha256(canonical(task, without=NOT_SIGNED)).hexdigest()


def spec_digest(spec: SubModelSpec) -> str:
    """The sha256 of a sub-model's spec."""
    return hashlib.sha256(canonical(spec)).hexdigest()


def manifest_path(path: Path) -> Path:
    """Where the signed manifest of the file at `path` lies: beside it."""
    return path.with_name(f"{path.name}.manifest.json")


def encode_manifest(signed: SignedManifest) -> bytes:
    """A signed manifest as a file."""
    return canonical(signed) + b"\n"


def decode_manifest(data: bytes) -> SignedManifest:
    """Read a signed manifest, whose signature is not looked at; raises `PeerError` for anything else."""
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
