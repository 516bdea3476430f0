"""Two places for a device's served model, of which one is in use: A/B slots, as boards update their systems.

    serving/current.json        which slot is in use, the digest of its model and that of the one before
    serving/current             a link to that slot, by which `models/` shows its model (see `model_link`)
    serving/a/model.onnx        a model, with model.onnx.manifest.json beside it where the server has signed
    serving/a/model.json        what it is; written last, so that it says of a whole file what it must be
    serving/b/...

Only the slot that is not in use is ever written, and `current.json` is replaced in one rename: wherever the
power goes, one whole model is in use. A slot whose file is not what its note says counts as empty.
One process writes, whose threads take turns (`changing`); any number may read at the same time.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from edge_client.inference.model_link import point_at
from edge_client.storage.atomic_files import sync, write_synced
from schemas.base import Frozen
from schemas.errors import EdgeError
from schemas.names import Digest
from schemas.security.manifest import SignedManifest, encode_manifest, manifest_path
from schemas.values import Count, DeliveryVerdict, Fraction, Text, Variant

log = logging.getLogger(__name__)

Slot = Literal["a", "b"]
_OTHER: dict[Slot, Slot] = {"a": "b", "b": "a"}
_TRIES = 3
"""A reader may meet a switch half way, and then looks again."""
_TURNS = threading.RLock()


class SlotIsEmpty(EdgeError):
    """There is no whole model to switch to."""


class ServedModel(Frozen):
    """What `model.json` says of the file beside it: `digest` is its sha256, the rest was measured here.

    `accuracy` is on `examples` local ones, `latency_ms` of one image with one thread, `parent` the sha256 of
    the file that a smaller variant was made of, `why` the reason for serving this one. Of a delivered model,
    `verdict` is what its trial came to and `instead_of` the model that it was compared with.
    """

    version: Text
    digest: Digest
    variant: Variant = "fp32"
    parent: Digest | None = None
    accuracy: Fraction | None = None
    examples: Count = 0
    latency_ms: Annotated[float, Field(ge=0, le=1e9)] | None = None
    class_names: tuple[Text, ...] = ()
    why: Text = ""
    verdict: DeliveryVerdict | None = None
    instead_of: Digest | None = None

    @property
    def exported(self) -> str:
        """The sha256 of the exported file, which this one is or was made of."""
        return self.parent or self.digest


class Current(Frozen):
    """`current.json`: the slot in use, its model, and the model in the other slot that one may go back to."""

    slot: Slot
    digest: Digest
    former: Digest | None = None


@dataclass(frozen=True)
class Served:
    """A whole model in a slot."""

    slot: Slot
    folder: Path
    model: ServedModel

    @property
    def path(self) -> Path:
        """The ONNX file; it may be replaced once its slot is not in use any more."""
        return self.folder / "model.onnx"

    def read(self) -> bytes | None:
        """The file's bytes; None where they are no longer what the note says."""
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
        """Hold other threads of this process off while a model is filled in and switched to."""
        return _TURNS

    def show(self) -> None:
        """Let `models/` show the model in use, should a power cut have come in between."""
        now = self.current()
        if now is not None:
            point_at(now.folder)

    def current(self) -> Served | None:
        """The model in use; the one before it where that is damaged; None where there is neither."""
        named = self._read_current()
        for _ in range(_TRIES):
            if named is None:
                return None
            served = self._whole(named.slot, named.digest)
            if served is not None:
                return served
            before, named = named, self._read_current()
            if named == before:
                break
        return None if named is None else self._instead_of(named)

    def spare(self) -> Path:
        """The folder of the slot that is not in use."""
        return self.folder / self._spare()

    def waiting(self) -> Served | None:
        """The whole model in the slot that is not in use, if there is one."""
        return self._whole(self._spare())

    def fill(self, data: bytes, model: ServedModel, *, signed: SignedManifest | None = None) -> Served:
        """Write a model, and the server's word for it, into the slot that is not in use; all of it synced.

        The model that is in use already is not written again: the other slot keeps the one before it.
        Raises `SlotIsEmpty` where the bytes are not the note's, and then leaves the slot as it was.
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
        self._make(served.folder)
        write_synced(served.path, data)
        if signed is None:
            manifest_path(served.path).unlink(missing_ok=True)
        else:
            write_synced(manifest_path(served.path), encode_manifest(signed))
        write_synced(served.folder / "model.json", model.model_dump_json().encode())
        return served

    def switch(self, digest: str) -> Served:
        """Use the model of that digest, which one has filled in; done again it changes nothing.

        Raises `SlotIsEmpty` where no slot holds it whole.
        """
        now = self.current()
        if now is not None and now.model.digest == digest:
            return now
        slot = self._spare() if now is None else _OTHER[now.slot]
        served = self._whole(slot, digest)
        if served is None:
            raise SlotIsEmpty(f"{self.folder / slot} holds no whole model {digest[:16]}")
        self._write_current(served, former=None if now is None else now.model.digest)
        return served

    def back(self) -> Served | None:
        """Use the model before the one in use, if it is still whole; None, and no change, where it is not."""
        named = self._read_current()
        served = None if named is None else self._former(named)
        if served is not None:
            self._write_current(served, former=None)
        return served

    def sign(self, signed: SignedManifest) -> bool:
        """Put the server's word beside the model in use that it is for; False where it is for another."""
        now = self.current()
        if now is None or now.model.digest != signed.manifest.sha256:
            return False
        write_synced(manifest_path(now.path), encode_manifest(signed))
        point_at(now.folder)
        return True

    def _spare(self) -> Slot:
        now = self.current()
        return "a" if now is None else _OTHER[now.slot]

    def _instead_of(self, named: Current) -> Served | None:
        former = self._former(named)
        where = self.folder / named.slot
        log.warning("%s is damaged; %s", where, "the model before it serves" if former else "nothing serves")
        return former

    def _former(self, named: Current) -> Served | None:
        return None if named.former is None else self._whole(_OTHER[named.slot], named.former)

    def _whole(self, slot: Slot, digest: str | None = None) -> Served | None:
        """What is in a slot, if it is whole, and of that digest where one is named."""
        folder = self.folder / slot
        try:
            model = ServedModel.model_validate_json((folder / "model.json").read_bytes())
            with (folder / "model.onnx").open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, ValidationError):
            return None
        fits = found == model.digest and digest in (None, found)
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

    def _make(self, folder: Path) -> None:
        """Make a slot's folder; what lies in a folder is on disk only once its own name is."""
        folder.mkdir(parents=True, exist_ok=True)
        sync(self.folder)
        sync(self.folder.parent)
