"""Two slots for a device's served model, one of which is in use (A/B updates).

    serving/current.json        the slot in use, the digests of its model and of the previous one
    serving/current             a link to that slot, to which `models/` links (see `point_at`)
    serving/a/model.onnx        a model, with model.onnx.manifest.json if the server has signed it
    serving/a/model.fp32.onnx   the export that a smaller model was made from, which any runtime reads
    serving/a/model.json        the model's note, written last, so that it describes a complete file
    serving/b/...

Only the slot that is not in use is written, and `current.json` is replaced in one rename: a complete model
is in use after any power cut. A slot whose file does not match its note counts as empty. One process writes,
one thread at a time (`changing`); any number of processes may read.
"""

import hashlib
import logging
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edge_client.storage.atomic_files import file_sha256, link_in_place, sync, write_synced
from schemas.base import Digest, Frozen
from schemas.errors import EdgeError
from schemas.security.manifest import SignedManifest, encode_manifest, manifest_path
from schemas.values import Count, DeliveryVerdict, Fraction, Metrics, Text, Variant

log = logging.getLogger(__name__)

Slot = Literal["a", "b"]
_OTHER: dict[Slot, Slot] = {"a": "b", "b": "a"}
_TRIES = 3  # number of reads, since a switch may happen between the reads of two files
_TURNS = threading.RLock()


class SlotIsEmpty(EdgeError):
    """There is no complete model to switch to."""


class ServedModel(Frozen):
    """`model.json`, the note on a model; `digest` is the sha256 of its file.

    `accuracy` and all `metrics` of its task are measured on `examples` local examples, `latency_ms` per image
    with one thread. `parent` is the sha256 of the export that a variant was made from, `why` the reason for
    serving this variant. Of a delivered model, `verdict` is the result of its trial and `instead_of` the
    model it was compared with.
    """

    version: Text
    digest: Digest
    variant: Variant = "fp32"
    parent: Digest | None = None
    accuracy: Fraction | None = None
    metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    examples: Count = 0
    latency_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None
    class_names: tuple[Text, ...] = ()
    why: Text = ""
    verdict: DeliveryVerdict | None = None
    instead_of: Digest | None = None

    @property
    def exported_digest(self) -> str:
        """The sha256 of the exported file, which this one is or was made from."""
        return self.parent or self.digest


class Current(Frozen):
    """`current.json`: the slot in use, its model, and the previous model in the other slot."""

    slot: Slot
    digest: Digest
    former: Digest | None = None


@dataclass(frozen=True)
class Served:
    """A complete model in a slot."""

    slot: Slot
    folder: Path
    model: ServedModel

    @property
    def path(self) -> Path:
        """The ONNX file, which may be replaced once its slot is no longer in use."""
        return self.folder / "model.onnx"

    def read(self) -> bytes | None:
        """The file's bytes; None if they no longer match the note."""
        try:
            data = self.path.read_bytes()
        except OSError:
            return None
        return data if hashlib.sha256(data).hexdigest() == self.model.digest else None


class Slots:
    """The slots below `folder`, a device's `<state folder>/serving`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def changing() -> AbstractContextManager[object]:
        """A lock that keeps other threads out while a model is written and switched to."""
        return _TURNS

    def show(self) -> None:
        """Link `models/` to the model in use, as after a power cut."""
        now = self.current()
        if now is not None:
            point_at(now.folder)

    def current(self) -> Served | None:
        """The model in use, or the previous one if that is damaged; None if both are missing."""
        named = self._read_current()
        for _ in range(_TRIES):
            if named is None:
                return None
            served = self.read_slot(named.slot, named.digest)
            if served is not None:
                return served
            before, named = named, self._read_current()
            if named == before:
                break
        if named is None:
            return None
        former = self._former(named)
        instead = "the model before it serves" if former else "nothing serves"
        log.warning("%s is damaged; %s", self.folder / named.slot, instead)
        return former

    def spare(self) -> Path:
        return self.folder / self._spare()

    def waiting(self) -> Served | None:
        """The complete model in the slot that is not in use, if any."""
        return self.read_slot(self._spare())

    def fill(
        self,
        data: bytes,
        model: ServedModel,
        *,
        signed: SignedManifest | None = None,
        export: bytes | None = None,
    ) -> Served:
        """Write a model and its manifest into the slot that is not in use, and sync all files.

        `export` is what a variant was made from. A model that is already in use is not written again, and the
        other slot keeps the previous one.
        Raises `SlotIsEmpty` if the bytes do not match the note; the slot is then unchanged.
        """
        if hashlib.sha256(data).hexdigest() != model.digest:
            raise SlotIsEmpty(f"the bytes of model {model.version} are not those of {model.digest[:16]}")
        now = self.current()
        if now is not None and now.model.digest == model.digest:
            if signed is not None:
                self.sign(signed)
            return now
        slot: Slot = "a" if now is None else _OTHER[now.slot]
        served = Served(slot, self.folder / slot, model)
        served.folder.mkdir(parents=True, exist_ok=True)
        # Without a sync of its parents the folder's files may be lost.
        sync(self.folder)
        sync(self.folder.parent)
        write_synced(served.path, data)
        manifest = None if signed is None else encode_manifest(signed)
        for path, beside in ((manifest_path(served.path), manifest), (export_path(served.path), export)):
            if beside is None:
                path.unlink(missing_ok=True)
            else:
                write_synced(path, beside)
        write_synced(served.folder / "model.json", model.model_dump_json().encode())
        return served

    def switch(self, digest: str) -> Served:
        """Use the filled-in model of that digest; raises `SlotIsEmpty` if no slot holds it completely."""
        now = self.current()
        if now is not None and now.model.digest == digest:
            return now
        slot = self._spare() if now is None else _OTHER[now.slot]
        served = self.read_slot(slot, digest)
        if served is None:
            raise SlotIsEmpty(f"{self.folder / slot} holds no whole model {digest[:16]}")
        self._write_current(served, former=None if now is None else now.model.digest)
        return served

    def back(self) -> Served | None:
        """Return to the previous model; None, without a change, if it is not complete."""
        named = self._read_current()
        served = None if named is None else self._former(named)
        if served is not None:
            self._write_current(served, former=None)
        return served

    def sign(self, signed: SignedManifest) -> bool:
        """Store the manifest of the model in use; False if it belongs to another model."""
        now = self.current()
        if now is None or now.model.digest != signed.manifest.sha256:
            return False
        write_synced(manifest_path(now.path), encode_manifest(signed))
        point_at(now.folder)
        return True

    def _spare(self) -> Slot:
        now = self.current()
        return "a" if now is None else _OTHER[now.slot]

    def _former(self, named: Current) -> Served | None:
        return None if named.former is None else self.read_slot(_OTHER[named.slot], named.former)

    def read_slot(self, slot: Slot, digest: str | None = None) -> Served | None:
        """The model in a slot if it is complete and has the digest, if one is given."""
        folder = self.folder / slot
        try:
            model = ServedModel.model_validate_json((folder / "model.json").read_bytes())
            written = file_sha256(folder / "model.onnx")
        except (OSError, ValidationError):
            return None
        fits = written == model.digest and digest in (None, written)
        return Served(slot, folder, model) if fits else None

    def _read_current(self) -> Current | None:
        try:
            return Current.model_validate_json((self.folder / "current.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def _write_current(self, served: Served, *, former: str | None) -> None:
        current = Current(slot=served.slot, digest=served.model.digest, former=former)
        write_synced(self.folder / "current.json", current.model_dump_json().encode())
        point_at(served.folder)


# Links the served model to a fixed path: `models/model.onnx` is the file in the slot in use.
#
#     serving/current                  -> a, or b: replaced in one rename
#     models/model.onnx                -> ../serving/current/model.onnx
#     models/model.onnx.manifest.json  -> ../serving/current/model.onnx.manifest.json
#     models/model.fp32.onnx           -> ../serving/current/model.fp32.onnx
#     models/model.json                -> ../serving/current/model.json
#
# On a file system without symbolic links (FAT), `models/` holds copies, renewed after every switch.

MODEL, NOTE = "model.onnx", "model.json"
MANIFEST = manifest_path(Path(MODEL)).name


def export_path(model: Path) -> Path:
    """Where the export of 32 bits lies that a variant was made from: `NAME.fp32.onnx` beside it."""
    return model.with_name(f"{model.stem}.fp32.onnx")


def read_export(model: Path) -> bytes | None:
    """The export beside a variant; None beside the export itself."""
    path = export_path(model)
    return path.read_bytes() if path.exists() else None


EXPORT = export_path(Path(MODEL)).name


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
    for name in (MODEL, MANIFEST, EXPORT, NOTE):
        if (slot / name).exists():
            link_in_place(models / name, f"../{serving.name}/current/{name}")
        else:
            (models / name).unlink(missing_ok=True)


def _copy(slot: Path, models: Path) -> None:
    """Copy the slot's files; a model never has the manifest of another."""
    if not _same(slot / MODEL, models / MODEL):
        (models / MANIFEST).unlink(missing_ok=True)
        write_synced(models / MODEL, (slot / MODEL).read_bytes())
    for name in (MANIFEST, EXPORT, NOTE):
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
