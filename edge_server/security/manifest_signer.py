"""Signs a run's tasks, model versions and exports.

`schemas.security.manifest.Manifest` says what each signature means.
"""

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edge_client.storage.atomic_files import write_synced
from schemas.messages import Message, TaskBase
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

AnyTask = TypeVar("AnyTask", bound=TaskBase)


@dataclass(frozen=True)
class ManifestSigner:
    """Signs manifests of one run; without a signer, tasks and messages stay unsigned."""

    federation: str
    run: str
    signer: "Signer | None" = None

    def task(self, task: AnyTask, device: str, *, parent_sha256: str) -> AnyTask:
        if self.signer is None:
            return task
        # Sign the task as the device decodes it: a value may change form on the way through JSON.
        decoded = type(task).model_validate_json(task.model_dump_json())
        manifest = Manifest(
            what="task",
            federation=self.federation,
            run=self.run,
            round=task.round,
            attempt=task.attempt,
            device=device,
            tier=task.tier,
            ratio=str(task.ratio),
            sha256=content_digest(decoded),
            spec_sha256=spec_digest(task.spec),
            parent_sha256=parent_sha256,
            issued_at=int(time.time()),
        )
        return task.model_copy(update={"manifest": self.signer.sign(manifest)})

    def model(self, manifest: Path, round_number: int, *, durable: bool = True) -> None:
        """Sign a version of the global model by its `manifest.json`, which names the digests of the rest."""
        signature = manifest.with_name("manifest.signed.json")
        self._file("model", manifest, signature, durable=durable, round=round_number)

    def export(self, path: Path, provenance: Mapping[str, str], spec: SubModelSpec) -> None:
        """Sign a tier's ONNX file that this server exported; `provenance` is the file's own metadata."""
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

    def _file(
        self, what: Kind, path: Path, signature: Path, *, durable: bool = True, **named: object
    ) -> None:
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
        write_synced(signature, signed, durable=durable)

    def sign_message(self, message: Message, to_sign: Manifest | None) -> Message:
        """The message with `to_sign` signed as its manifest, if there is one and a key."""
        if self.signer is None or to_sign is None:
            return message
        return message.model_copy(update={"manifest": self.signer.sign(to_sign)})


def open_manifest_signer(federation: str, run: str, folder: Path, key: Path | None) -> ManifestSigner:
    """The signer of a run, with `key`, or else with the run folder's own key, made on first use.

    Writes the public key to `signing.pub` in the run folder.
    """
    from edge_server.security.signing_key import load_or_make_signing_key

    signer = load_or_make_signing_key(folder / "signing.key" if key is None else key)
    write_synced(folder / "signing.pub", signer.public_text.encode())
    return ManifestSigner(federation, run, signer)
