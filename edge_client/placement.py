"""Where a finished model lies, with the server's word for it beside it, so that the two always fit.

    models/model.onnx, models/model.onnx.manifest.json      what this board serves
    models/waiting/...                                      the next one, until the server has signed for it
    models/model.json                                       what was measured of the newest one
    serving/...                                             the slots of `edge-client serve` (see `slots`)

Only a device that trusts a key lets a model wait: what it serves is signed at any time but between two
renames, and a crash there is repaired at the next start. Any other device puts a model in its place at once,
without a manifest until the server's word comes. Nobody serves a model beside another's manifest for long.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.files import put_in_place, write_synced
from edge_client.slots import ServedModel, Slots
from schemas.errors import EdgeError, PeerError
from schemas.manifest import SignedManifest, decode_manifest, encode_manifest, manifest_path

log = logging.getLogger(__name__)


def served(models: Path) -> Path:
    """The model that this board serves."""
    return models / "model.onnx"


def waiting(models: Path) -> Path:
    """The model that waits for the server's signature."""
    return models / "waiting" / "model.onnx"


def begin(models: Path) -> Path:
    """Where to export the next model to."""
    path = waiting(models)
    path.parent.mkdir(parents=True, exist_ok=True)
    manifest_path(path).unlink(missing_ok=True)
    return path


def note(models: Path, model: ServedModel) -> None:
    """Put down what was measured of the waiting model."""
    write_synced(models / "model.json", model.model_dump_json().encode())


def slots(models: Path) -> Slots:
    """The slots of the device whose models lie in this folder."""
    return Slots(models.parent / "serving")


def serve_unsigned(models: Path) -> None:
    """Put the waiting model in its place without the server's word."""
    manifest_path(served(models)).unlink(missing_ok=True)
    put_in_place(waiting(models), served(models))
    _put_in_service(models, None)


def take_word(models: Path, signed: SignedManifest) -> bool:
    """Put the manifest beside its model and both in their place; False where there is no such model."""
    if _fits(waiting(models), signed):
        write_synced(manifest_path(waiting(models)), encode_manifest(signed))
        repair(models)
    elif _fits(served(models), signed):
        write_synced(manifest_path(served(models)), encode_manifest(signed))
    else:
        return False
    # Told again after a crash in between, this is done again too.
    _put_in_service(models, signed)
    return True


def repair(models: Path) -> None:
    """Finish putting a signed model in its place, wherever that was cut off; does nothing otherwise."""
    manifest = manifest_path(waiting(models))
    try:
        signed = decode_manifest(manifest.read_bytes())
    except FileNotFoundError:
        return
    except PeerError as error:
        log.warning("%s: %s", manifest, error)
        manifest.unlink()
        return
    # The model first: until its manifest follows, the manifest that still waits says what is to be done.
    if _fits(waiting(models), signed):
        put_in_place(waiting(models), served(models))
    if _fits(served(models), signed):
        put_in_place(manifest, manifest_path(served(models)))
    else:
        manifest.unlink()


def _put_in_service(models: Path, signed: SignedManifest | None) -> None:
    """Serve the model from a slot from now on; where that cannot be done the one before goes on serving."""
    try:
        model = ServedModel.model_validate_json((models / "model.json").read_bytes())
        slots(models).fill(served(models).read_bytes(), model, signed=signed)
        slots(models).switch(model.digest)
    except FileNotFoundError:
        return
    except (OSError, EdgeError, ValidationError) as error:
        log.warning("the new model is not served: %s", str(error).partition("\n")[0])


def _fits(model: Path, signed: SignedManifest) -> bool:
    try:
        with model.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == signed.manifest.sha256
    except OSError:
        return False
