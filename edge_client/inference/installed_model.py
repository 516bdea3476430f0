"""Brings a finished export into use: one file in a slot, with the server's signature.

    models/waiting/model.onnx, model.json      the next model and its note, until it is used or dropped
    serving/a|b/...                            the slots, one of which is in use (see `model_slots`)
    models/model.onnx, model.json, ...         links to the slot in use (see `model_slots`)

On a device that trusts a key, a model waits for the server's signature, so that the served model is always
signed; the next start repairs the state after a crash. Any other device uses a model at once and stores the
signature when it arrives.
"""

import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.inference.model_slots import ServedModel, Slots, read_export
from edge_client.inference.providers.record import carry_record
from edge_client.storage.atomic_files import file_sha256, write_synced
from schemas.errors import EdgeError, PeerError
from schemas.security.manifest import SignedManifest, decode_manifest, encode_manifest, manifest_path
from schemas.tensors.chunks import digest_of

log = logging.getLogger(__name__)


class Superseded(EdgeError):
    """The model that the waiting model was compared with is no longer in use."""


def served_model_path(models: Path) -> Path:
    return models / "model.onnx"


def waiting(models: Path) -> Path:
    """Path of the model that is not in use yet."""
    return models / "waiting" / "model.onnx"


def begin(models: Path) -> Path:
    """Drop the waiting model and return the path to export the next one to."""
    drop(models)
    path = waiting(models)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def drop(models: Path) -> None:
    for path in waiting(models).parent.glob("*"):
        path.unlink(missing_ok=True)


def note(models: Path, model: ServedModel) -> None:
    write_synced(_note_path(models), model.model_dump_json().encode())


def slots(models: Path) -> Slots:
    return Slots(models.parent / "serving")


def put_in_use(models: Path, signed: SignedManifest | None = None) -> None:
    """Move the waiting model into a slot and use it; may be repeated after a crash.

    Raises `OSError`, `Superseded`, and `EdgeError` if the note belongs to another file; the previous model
    then stays in use.
    """
    data, home = waiting(models).read_bytes(), slots(models)
    version = served_model_path(Path()).name if signed is None else signed.manifest.run
    unmeasured = ServedModel(version=version, digest=digest_of(data), why="of an earlier run")
    model = _read_note(_note_path(models)) or unmeasured
    with home.changing():
        now = home.current()
        if now is not None and now.model.digest not in (model.digest, model.instead_of or now.model.digest):
            compared = f"{model.version} was compared with {model.instead_of}"
            raise Superseded(f"{compared}, in use is {now.model.version}")
        filled = home.fill(data, model, signed=signed, export=read_export(waiting(models)))
        carry_record(waiting(models), filled.path)
        home.switch(model.digest)
    drop(models)


def take_signature(models: Path, signed: SignedManifest) -> bool:
    """Store a model's manifest, and use the model if it waits for it; False if there is no such model."""
    if _fits(waiting(models), signed):
        write_synced(manifest_path(waiting(models)), encode_manifest(signed))
        _put_signed_in_use(models)
        return True
    return slots(models).sign(signed)


def repair(models: Path) -> None:
    """At a start: finish interrupted work, and link `models/` to the model in use."""
    _put_signed_in_use(models)
    slots(models).show()


def _put_signed_in_use(models: Path) -> None:
    """Use the waiting model if it has its manifest; remove an invalid manifest."""
    path = manifest_path(waiting(models))
    try:
        signed = decode_manifest(path.read_bytes())
        if _fits(waiting(models), signed):
            put_in_use(models, signed)
        else:
            path.unlink()
    except FileNotFoundError:
        return
    except PeerError as error:
        log.warning("%s: %s", path, error)
        path.unlink()
    except Superseded as error:
        log.warning("the new model is not served: %s", error)
        drop(models)
    except (OSError, EdgeError) as error:
        log.warning("the new model is not served: %s", str(error).partition("\n")[0])


def _note_path(models: Path) -> Path:
    return waiting(models).with_name("model.json")


def _read_note(path: Path) -> ServedModel | None:
    try:
        return ServedModel.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise EdgeError(f"{path}: {str(error).partition(chr(10))[0]}") from error


def _fits(model: Path, signed: SignedManifest) -> bool:
    try:
        return file_sha256(model) == signed.manifest.sha256
    except OSError:
        return False
