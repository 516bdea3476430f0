"""What the server vouches for in a run: its tasks, its models, and what devices say of their exports.

What each signature means stands in `schemas.security.manifest.Manifest`.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.storage.atomic_files import write_synced
from schemas.messages import Message, Task, encode_message
from schemas.security.manifest import (
    Kind,
    Manifest,
    content_digest,
    encode_manifest,
    manifest_path,
    spec_digest,
)
from schemas.submodel import SubModelSpec

if TYPE_CHECKING:
    from edge_server.security.signing_key import Signer


@dataclass(frozen=True)
class Notary:
    """Signs in the name of one run; without a signer it signs nothing and lets everything pass as it is."""

    federation: str
    run: str
    signer: Signer | None = None

    def task(self, task: Task, device: str, *, parent_sha256: str) -> Task:
        """The task with a manifest for `device`; raises what `encode_message` does if that is too large."""
        if self.signer is None:
            return task
        # Signed is what the device will read, in case a value reads back in another form.
        heard = Task.model_validate_json(encode_message(task))
        manifest = Manifest(
            what="task",
            federation=self.federation,
            run=self.run,
            round=task.round,
            attempt=task.attempt,
            device=device,
            tier=task.tier,
            ratio=str(task.ratio),
            sha256=content_digest(heard),
            spec_sha256=spec_digest(task.spec),
            parent_sha256=parent_sha256,
            issued_at=int(time.time()),
        )
        signed = task.model_copy(update={"manifest": self.signer.sign(manifest)})
        encode_message(signed)
        return signed

    def model(self, manifest: Path, round_number: int, *, durable: bool = True) -> None:
        """Sign a version of the global model by its `manifest.json`, which names the digests of the rest."""
        beside = manifest.with_name("manifest.signed.json")
        self._file("model", manifest, beside, durable=durable, round=round_number)

    def export(self, path: Path, provenance: Mapping[str, str], spec: SubModelSpec) -> None:
        """Sign a tier's ONNX file, which this server has made, as what the file itself says that it is."""
        self._file(
            "tier-export",
            path,
            manifest_path(path),
            round=int(provenance["round"]),
            tier=int(provenance["tier"]),
            ratio=provenance["prune_ratio"],
            spec_sha256=spec_digest(spec),
            parent_sha256=provenance["parent_sha256"],
        )

    def _file(self, what: Kind, path: Path, beside: Path, *, durable: bool = True, **named: object) -> None:
        if self.signer is None:
            return
        fields = {
            "what": what,
            "federation": self.federation,
            "run": self.run,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "issued_at": int(time.time()),
            **named,
        }
        signed = encode_manifest(self.signer.sign(Manifest.model_validate(fields)))
        write_synced(beside, signed, durable=durable)

    def countersigned(self, message: Message, vouched: Manifest | None) -> Message:
        """The message with the signature that it shall carry, if any."""
        if self.signer is None or vouched is None:
            return message
        return message.model_copy(update={"manifest": self.signer.sign(vouched)})


def run_notary(federation: str, run: str, folder: Path, key: Path | None) -> Notary:
    """The notary of a run: with the key of the federation file, or else one that stays in the run's folder.

    The public key lies in the folder as `signing.pub`.
    """
    from edge_server.security.signing_key import load_or_make_signing_key

    signer = load_or_make_signing_key(folder / "signing.key" if key is None else key)
    write_synced(folder / "signing.pub", signer.public_text.encode())
    return Notary(federation, run, signer)
