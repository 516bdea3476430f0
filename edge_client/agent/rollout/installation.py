"""How an offered model is checked, compared with the one in use, and put in use in a slot."""

import logging
from collections.abc import Callable
from enum import StrEnum

from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.runtime import OfferRuntime
from edge_client.agent.rollout.trial import (
    Comparison,
    ComparisonRunner,
    Look,
    ModelPair,
    ModelState,
    ModelTrial,
)
from edge_client.agent.settings import AgentSettings
from edge_client.data.local import LocalData
from edge_client.inference import model_slots
from edge_client.inference.providers.record import carry_record, record_path
from edge_client.inference.quantization.selection import EXPORT_ALONE
from edge_client.inference.service.health import FILE, Health, read_health
from edge_client.security.trusted_key import TrustedKey
from edge_client.storage import atomic_files
from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import Inbox
from schemas.errors import PeerError
from schemas.messages import Message, ModelOffer, ModelReport, ModelWithdrawal
from schemas.messages.rollout import Cause, Stage, TrialTerms

log = logging.getLogger(__name__)

NOTHING_BEFORE = "there is no model before it to go back to: it keeps serving"


def make_runtime(
    settings: AgentSettings,
    get_data: Callable[[], LocalData],
    inbox: Inbox,
    publish: Callable[[Message], None],
) -> OfferRuntime:
    """The device's part in rollouts of models; `get_data` returns its data of today."""
    state = ModelState(settings.federation, settings.device)
    path = settings.state / "rollout" / "trial.json"
    return OfferRuntime(state, ModelInstallation(settings, get_data), path, inbox, publish)


class ModelInstallation:
    """The model slots of one device, and its comparisons of models."""

    noun, max_wait_s = "version", 120.0
    failure: StrEnum = Cause.CRASHES
    trial_type: type[offers.Trial] = ModelTrial

    def __init__(self, settings: AgentSettings, get_data: Callable[[], LocalData]) -> None:
        folder = settings.state / "rollout"
        self.store, self._slots = BlobStore(folder / "blobs"), model_slots.Slots(settings.state / "serving")
        self._trust, self._made = settings.trust, folder / "made.onnx"
        self._recorded = folder / "candidate.onnx"  # the choice of a provider lies beside this path
        # Only the original file is signed: a device that requires signatures serves no other variant.
        variants = settings.variants if settings.trust is None else EXPORT_ALONE
        self._comparisons = ComparisonRunner(get_data, folder / "examples.npz", variants, settings.providers)

    # --- before the switch ---
    def object_to(self, offer: ModelOffer) -> offers.Objection | None:
        """The objection to a file that is not signed, or has no room beside the copy that is served."""
        if (objection := check_signature(offer, self._trust)) is not None:
            return objection
        try:
            atomic_files.check_free(self.store.directory, 2 * offer.blob.size)
        except PeerError as error:
            return Cause.NO_SPACE, str(error)
        return None

    def find_in_use(self) -> str | None:
        """The digest of the original file of the model in use."""
        now = self._slots.current()
        return None if now is None else now.model.exported_digest

    def restore(self, trial: ModelTrial) -> offers.Restored:
        return offers.Restored(trial, self.store.present(trial.offer.blob))

    def do(self, work: offers.Work) -> offers.Worked:
        """Compare the offered model with the one in use, or that with the former one."""
        terms = work.offer.terms
        assert isinstance(terms, TrialTerms)
        now, former = self._slots.current(), self._slots.waiting()
        if work.goal == Stage.COMPARED:
            offered = self.store.blob_path(work.offer.blob.digest)
            pair = ModelPair(None if now is None else now.path, offered, self._made, self._recorded)
            return offers.Worked(work, self._comparisons.compare(pair, terms.examples))
        if now is None:
            comparison = Comparison(objection=(Cause.SUPERSEDED, "no model is in use"))
        else:
            pair = ModelPair(former.path if former else None, now.path)
            comparison = self._comparisons.compare(pair, terms.examples)
        now = self._slots.current()
        serving = None if now is None else now.model.digest
        return offers.Worked(work, Look(comparison, serving, _health(self._slots.waiting()), _health(now)))

    def switch(self, trial: ModelTrial) -> offers.Switched | offers.SwitchFailed:
        """Put the offered file into the spare slot and use it; repeating this changes nothing."""
        offer, measured, digest = trial.offer, trial.candidate, trial.digest
        try:
            if self._is_serving(digest):
                return offers.Switched()
            source = self.store.blob_path(digest) if trial.made is None else self._made
            data, signed = source.read_bytes(), offer.manifest if trial.made is None else None
            note = model_slots.ServedModel(
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
                filled = self._slots.fill(data, note, signed=signed, export=model_slots.read_export(source))
                # Health that an earlier trial of the same file has recorded does not count.
                (filled.folder / FILE).unlink(missing_ok=True)
                carry_record(self._recorded, filled.path)
                self._slots.switch(digest)
        except OSError as error:
            cause = Cause.NO_SPACE if error.errno in atomic_files.DISK_FULL else Cause.DAMAGED
            return offers.SwitchFailed((cause, f"it cannot be put in use: {error}"))
        except model_slots.SlotIsEmpty as error:
            return offers.SwitchFailed((Cause.DAMAGED, str(error)))
        return offers.Switched()

    # --- after it ---
    def go_back(self, trial: ModelTrial) -> offers.RolledBack:
        """Use the former model if the offered one is in use."""
        if not self._is_serving(trial.digest):
            return offers.RolledBack()
        try:
            former = self._slots.back()
        except OSError as error:
            return offers.RolledBack(f"the former model cannot be put back: {error}")
        if former is None:
            return offers.RolledBack(NOTHING_BEFORE)
        log.info("serving %s again", former.model.version)
        return offers.RolledBack()

    def answer(self, withdrawal: ModelWithdrawal) -> ModelReport:
        """Roll back a version of an earlier rollout if it is in use; repeating this changes nothing."""
        now = self._slots.current()
        detail = "it is not in use"
        if now is not None and now.model.version == withdrawal.version:
            back = self._slots.back()
            detail = NOTHING_BEFORE if back is None else f"serving {back.model.version} again"
        return ModelReport(
            federation=withdrawal.federation,
            device=withdrawal.device,
            rollout=withdrawal.rollout,
            version=withdrawal.version,
            stage=Stage.ROLLED_BACK,
            cause=Cause.WITHDRAWN,
            detail=detail,
        )

    def give_sign(self, now: float) -> None:
        """No launcher watches a model."""

    def clean_up(self) -> None:
        """Remove the examples, the variant, and the choice of a provider."""
        self._comparisons.forget()
        for path in (self._made, model_slots.export_path(self._made)):
            path.unlink(missing_ok=True)
        record_path(self._recorded).unlink(missing_ok=True)

    def stop(self) -> None:
        self._comparisons.stop()

    def _is_serving(self, digest: str) -> bool:
        now = self._slots.current()
        return now is not None and now.model.digest == digest


def _health(slot: model_slots.Served | None) -> Health | None:
    return None if slot is None else read_health(slot.folder, slot.model.digest)


def check_signature(offer: ModelOffer, key: TrustedKey | None) -> offers.Objection | None:
    """The objection to an offer before its file is fetched; without a key there is none.

    The fetched bytes must have the digest that is signed.
    """
    if key is None:
        return None
    if offer.manifest is None:
        return Cause.UNTRUSTED, "the file is not signed: the server must sign with the key that --trust names"
    try:
        manifest = key.check(offer.manifest)
    except PeerError as error:
        return Cause.UNTRUSTED, str(error)
    named = (manifest.what, manifest.federation, manifest.tier, manifest.sha256)
    if named != ("tier-export", offer.federation, offer.tier, offer.blob.digest):
        text = f"what is signed is a {named[0]} of tier {named[2]} in {named[1]}, not this file"
        return Cause.UNTRUSTED, text
    return None
