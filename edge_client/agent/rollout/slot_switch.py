"""A trial's use of the model slots: which models to compare, the switch, the roll-back."""

import logging
from pathlib import Path

from edge_client.agent.rollout.comparison import ModelPair
from edge_client.agent.rollout.events import RolledBack, Switched, SwitchFailed
from edge_client.agent.rollout.state import Trial
from edge_client.inference.model_slots import ServedModel, SlotIsEmpty, Slots
from edge_client.inference.service.health import FILE, Health, read_health
from edge_client.storage.atomic_files import DISK_FULL
from edge_client.storage.blob_store import BlobStore
from schemas.messages import ModelOffer, ModelReport, ModelWithdrawal
from schemas.messages.rollout_terms import Cause, Stage

log = logging.getLogger(__name__)

NOTHING_BEFORE = "there is no model before it to go back to: it goes on serving"


class ServingSlots:
    """The slots of one device; `store` holds the offered file."""

    def __init__(self, state: Path, store: BlobStore) -> None:
        self._made = state / "rollout" / "made.onnx"
        self._slots, self._store = Slots(state / "serving"), store

    def serving(self) -> str | None:
        now = self._slots.current()
        return None if now is None else now.model.digest

    def serving_file(self) -> str | None:
        """The digest of the original file of the model in use."""
        now = self._slots.current()
        return None if now is None else now.model.exported

    def before_the_switch(self, offer: ModelOffer) -> ModelPair:
        now = self._slots.current()
        return ModelPair(None if now is None else now.path, self._store.path(offer.blob.digest), self._made)

    def after_the_switch(self) -> ModelPair | None:
        """The former model, if it still exists, and the one in use; None if none is in use."""
        now, former = self._slots.current(), self._slots.waiting()
        return None if now is None else ModelPair(former.path if former else None, now.path)

    def health(self) -> tuple[Health | None, Health | None]:
        """The serving health of the former model and of the one in use."""
        found = [
            None if slot is None else read_health(slot.folder, slot.model.digest)
            for slot in (self._slots.waiting(), self._slots.current())
        ]
        return found[0], found[1]

    def switch(self, trial: Trial) -> Switched | SwitchFailed:
        """Put the offered file into the spare slot and use it; repeating this changes nothing."""
        offer, measured, digest = trial.offer, trial.candidate, trial.digest
        try:
            if self._is_serving(digest):
                return Switched()
            data = (self._store.path(digest) if trial.made is None else self._made).read_bytes()
            note = ServedModel(
                version=offer.version,
                digest=digest,
                variant=trial.variant,
                parent=None if trial.made is None else offer.blob.digest,
                accuracy=None if measured is None else measured.accuracy,
                examples=0 if measured is None else measured.examples,
                latency_ms=None if measured is None else measured.latency_ms,
                why=f"rollout {offer.rollout}",
            )
            with self._slots.changing():
                filled = self._slots.fill(data, note, signed=offer.manifest if trial.made is None else None)
                # Health that an earlier trial of the same file has recorded does not count.
                (filled.folder / FILE).unlink(missing_ok=True)
                self._slots.switch(digest)
        except OSError as error:
            cause = Cause.NO_SPACE if error.errno in DISK_FULL else Cause.DAMAGED
            return SwitchFailed(cause, f"it cannot be put in use: {error}")
        except SlotIsEmpty as error:
            return SwitchFailed(Cause.DAMAGED, str(error))
        return Switched()

    def forget(self) -> None:
        self._made.unlink(missing_ok=True)

    def go_back(self, digest: str) -> RolledBack:
        """Use the former model if that of this digest is in use."""
        if not self._is_serving(digest):
            return RolledBack()
        try:
            former = self._slots.back()
        except OSError as error:
            return RolledBack(f"the former model cannot be put back: {error}")
        if former is None:
            return RolledBack(NOTHING_BEFORE)
        log.info("serving %s again", former.model.version)
        return RolledBack()

    def withdrawn(self, message: ModelWithdrawal) -> ModelReport:
        """Roll back a version of an earlier rollout if it is in use; repeating this changes nothing."""
        now = self._slots.current()
        detail = "it is not in use"
        if now is not None and now.model.version == message.version:
            back = self._slots.back()
            detail = NOTHING_BEFORE if back is None else f"serving {back.model.version} again"
        return ModelReport(
            federation=message.federation,
            device=message.device,
            rollout=message.rollout,
            version=message.version,
            stage=Stage.ROLLED_BACK,
            cause=Cause.WITHDRAWN,
            detail=detail,
        )

    def _is_serving(self, digest: str) -> bool:
        now = self._slots.current()
        return now is not None and now.model.digest == digest
