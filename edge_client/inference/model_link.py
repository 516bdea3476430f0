"""Links the served model to a fixed path: `models/model.onnx` is the file in the slot in use.

    serving/current                  -> a, or b: replaced in one rename
    models/model.onnx                -> ../serving/current/model.onnx
    models/model.onnx.manifest.json  -> ../serving/current/model.onnx.manifest.json
    models/model.json                -> ../serving/current/model.json

On a file system without symbolic links (FAT), `models/` holds copies, renewed after every switch.
"""

import logging
from pathlib import Path

from edge_client.storage.atomic_files import link_in_place, write_synced
from schemas.security.manifest import manifest_path

log = logging.getLogger(__name__)

MODEL, NOTE = "model.onnx", "model.json"
MANIFEST = manifest_path(Path(MODEL)).name


def point_at(slot: Path) -> None:
    """Link `models/`, next to the slots' folder, to this slot; failures are logged and retried at a start."""
    serving, models = slot.parent, slot.parent.parent / "models"
    try:
        _link(slot, serving, models)
    except (OSError, NotImplementedError) as reason:
        try:
            _copy(slot, models)
        except OSError as error:
            log.warning("%s does not show the served model: %s", models / MODEL, error)
        else:
            log.info("%s is a copy of the served model: %s", models / MODEL, reason)


def _link(slot: Path, serving: Path, models: Path) -> None:
    link_in_place(serving / "current", slot.name)
    for name in (MODEL, MANIFEST, NOTE):
        if (slot / name).exists():
            link_in_place(models / name, f"../{serving.name}/current/{name}")
        else:
            (models / name).unlink(missing_ok=True)


def _copy(slot: Path, models: Path) -> None:
    """Copy the slot's files; a model never has the manifest of another."""
    if not _same(slot / MODEL, models / MODEL):
        (models / MANIFEST).unlink(missing_ok=True)
        write_synced(models / MODEL, (slot / MODEL).read_bytes())
    for name in (MANIFEST, NOTE):
        if _same(slot / name, models / name):
            continue
        if (slot / name).exists():
            write_synced(models / name, (slot / name).read_bytes())
        else:
            (models / name).unlink(missing_ok=True)


def _same(first: Path, other: Path) -> bool:
    if other.is_symlink() or not (first.exists() and other.exists()):
        return False
    return first.read_bytes() == other.read_bytes()
