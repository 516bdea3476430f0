"""How an offered release of the client is checked, installed, tried and put in use in an environment."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Self

from edge_client.agent.client_update.installer import ReleaseInstaller
from edge_client.agent.client_update.slots import ClientSlots
from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.machine import finish, object_to
from edge_client.agent.offers.runtime import OfferRuntime
from edge_client.agent.settings import AgentSettings
from edge_client.security.trusted_key import TrustedKey, check_release
from edge_client.storage.blob_store import BlobStore
from edge_client.system.libraries import release
from edge_client.transport.broker_link import Inbox
from schemas.errors import PeerError
from schemas.messages import ClientOffer, ClientReport, ClientWithdrawal, Message
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.security.client_release import board_fit, misfit

Step = tuple["ReleaseState", Sequence[offers.Command]]


class ReleaseTrial(offers.Trial):
    """An offered release and its stage. A former version ignores newer fields.

    `slot` and `former` are the environments of the release and before it, once it was switched to. The
    launcher counts the starts after the switch.
    """

    causes = UpdateCause
    steps: ClassVar = {UpdateStage.FETCHED: UpdateStage.INSTALLED, UpdateStage.INSTALLED: UpdateStage.CHECKED}
    counted = frozenset(steps)

    offer: ClientOffer
    stage: UpdateStage = UpdateStage.OFFERED
    cause: UpdateCause | None = None
    slot: str = ""
    former: str = ""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The trial in a file of another version, perhaps: fields that this one lacks are left out."""
        stored = json.loads(data)
        offer = {name: value for name, value in stored["offer"].items() if name in ClientOffer.model_fields}
        return cls.model_validate_json(json.dumps({**stored, "offer": offer}))


@dataclass(frozen=True)
class ReleaseState(offers.TrialState):
    """The trial of a release. `version`: that of this process's package.

    `watched_s` are the seconds of earlier connections of this process; `since` is when it was last connected
    or cut off, in seconds of the device's clock.
    """

    trial: ReleaseTrial | None = None
    version: str = ""
    watched_s: float = 0.0
    since: float = 0.0

    @property
    def is_undecided(self) -> bool:
        """Whether a switch is under way, which an offer of another release must not disturb."""
        trial = self.trial
        return trial is not None and (trial.going_back or trial.is_ready or trial.stage == offers.SWITCHED)

    def with_link(self, now: float, *, connected: bool) -> Self:
        """Only connected time counts as watched."""
        if self.connected == connected:
            return self
        passed = now - self.since if self.connected else 0.0
        return replace(self, connected=connected, watched_s=self.watched_s + passed, since=now)

    def with_restored(self, event: offers.Restored, now: float) -> Self:
        """A process of the former version finds that the trial has ended, unless it shall still switch."""
        restored = replace(super().with_restored(event, now), watched_s=0.0, since=now)
        trial = restored.trial
        assert trial is not None
        if trial.is_final or event.runs_it or not restored.is_undecided:
            return restored
        if trial.going_back:
            return restored.with_trial(trial.at(offers.ROLLED_BACK, going_back=False))
        superseded = UpdateCause.SUPERSEDED, "another environment was put in its place"
        end = event.back or (superseded if trial.stage == offers.SWITCHED else None)
        return restored if end is None else restored.with_trial(trial.with_end(offers.ROLLED_BACK, end))

    def make_trial(self, offer: ClientOffer) -> ReleaseTrial:
        return ReleaseTrial(offer=offer)

    def report(self) -> ClientReport:
        return ClientReport(**self.about(), running=self.version, had_it=self._trial.had_it)

    def watch(self, now: float) -> Step:
        """The release runs with the next start, if not in this process."""
        return self, [] if self.runs_it else [offers.Restart()]

    def resume_watch(self, now: float) -> Step:
        """Switch again, which notes what a process that ended too early has left out."""
        return self, [offers.Switch(self._trial)]

    def look(self, now: float) -> Step:
        """Keep a release that was connected for long enough; go back from one that does not connect."""
        trial, passed = self._trial, now - self.since
        terms = trial.offer.terms
        if not self.runs_it:
            return self, []
        if not self.connected and passed >= terms.connect_s:
            return object_to(self, trial, (UpdateCause.NO_CONNECTION, f"no connection for {passed:.0f} s"))
        if self.connected and self.watched_s + passed >= terms.watch_s:
            return finish(self.with_trial(trial.at(UpdateStage.KEPT)))
        return self, []

    @property
    def _trial(self) -> ReleaseTrial:
        assert self.trial is not None
        return self.trial


log = logging.getLogger(__name__)

COMPILED_SHARE = 0.4
"""What compiled modules add to the unpacked wheels; a third was measured with numpy and onnxruntime."""
PIP_BYTES = 32_000_000  # The environment's own pip
SIGN_EVERY_S = 2.0


def make_runtime(
    settings: AgentSettings,
    slots: ClientSlots,
    inbox: Inbox,
    publish: Callable[[Message], None],
    *,
    installer: ReleaseInstaller | None = None,
) -> OfferRuntime:
    """The device's part in rollouts of releases."""
    version = release("edge-federation") or ""
    state = ReleaseState(settings.federation, settings.device, version=version)
    installation = ReleaseInstallation(
        slots, installer or ReleaseInstaller(slots, settings.state), settings.trust, version
    )
    return OfferRuntime(state, installation, slots.root / "update.json", inbox, publish)


class ReleaseInstallation:
    """The environments of one device; `version` is that of this process's package."""

    noun, max_wait_s = "client release", 600.0
    failure: StrEnum = UpdateCause.NOT_INSTALLED
    trial_type: type[offers.Trial] = ReleaseTrial

    def __init__(
        self, slots: ClientSlots, installer: ReleaseInstaller, key: TrustedKey | None, version: str
    ) -> None:
        self.store, self._slots, self._installer = BlobStore(slots.root / "blobs"), slots, installer
        self._key, self._version, self._next_sign = key, version, 0.0

    # --- before the switch ---
    def object_to(self, offer: ClientOffer) -> offers.Objection | None:
        return objection_to(offer, self._key, self._slots)

    def find_in_use(self) -> str | None:
        """The digest of the release of this process."""
        running = self._slots.release(self._slots.running())
        return None if running is None else running.digest

    def restore(self, trial: ReleaseTrial) -> offers.Restored:
        blob = trial.offer.blob
        runs_it = self.find_in_use() == blob.digest
        return offers.Restored(trial, self.store.present(blob), runs_it, self._why_back(trial.offer.rollout))

    def _why_back(self, rollout: str) -> offers.Objection | None:
        """Why the launcher has gone back from the release, if it has."""
        trial = self._slots.trial()
        back = trial.get("back") if trial is not None and trial.get("rollout") == rollout else None
        if not back:
            return None
        cause = str(back.get("cause"))
        cause = UpdateCause(cause) if cause in set(UpdateCause) else UpdateCause.CRASHES
        return cause, str(back.get("detail", ""))

    def do(self, work: offers.Work) -> offers.Worked:
        """Install the archive into the spare slot, or try what is there."""
        offer = work.offer
        assert isinstance(offer, ClientOffer)
        if work.goal == UpdateStage.CHECKED:
            return offers.Worked(work, objection=self._installer.check(offer))
        issued_at = 0 if offer.manifest is None else offer.manifest.manifest.issued_at
        objection = self._installer.install(offer, self.store.blob_path(offer.blob.digest), issued_at)
        return offers.Worked(work, objection=objection)

    def switch(self, trial: ReleaseTrial) -> offers.Switched | offers.SwitchFailed:
        """Let the next start be one of the release; repeating this changes nothing."""
        offer, slot = trial.offer, self._slots.running()
        try:
            if self.find_in_use() != offer.blob.digest:
                slot = self._slots.spare().name
                if not self._slots.holds(slot, offer.blob.digest):
                    raise OSError(f"{slot} does not hold the whole release")
            self._slots.begin_trial(slot, {"rollout": offer.rollout, "version": offer.version}, offer.terms)
        except OSError as error:
            return offers.SwitchFailed((UpdateCause.NOT_INSTALLED, f"it cannot be switched to: {error}"))
        noted = self._slots.trial()
        return offers.Switched({"slot": slot, "former": "" if noted is None else str(noted["former"])})

    # --- after it ---
    def go_back(self, trial: ReleaseTrial) -> offers.RolledBack:
        """Let the next start be one of the former environment."""
        try:
            changed = self._slots.go_back(trial.slot, trial.former, trial.cause or "", trial.detail)
        except OSError as error:
            return offers.RolledBack(f"the former version cannot be put back: {error}")
        if changed or self._slots.current() == trial.former:
            return offers.RolledBack(restarts=self.find_in_use() == trial.offer.blob.digest)
        return offers.RolledBack("there is no former version to go back to: this one stays in use")

    def answer(self, withdrawal: ClientWithdrawal) -> ClientReport:
        """A release of an earlier rollout stays: which version was before it is no longer known."""
        running = self._slots.release(self._slots.running())
        stays = running is not None and running.name == withdrawal.version
        kept = "another rollout has come since, and the former version is no longer known: this one stays"
        return ClientReport(
            federation=withdrawal.federation,
            device=withdrawal.device,
            rollout=withdrawal.rollout,
            version=withdrawal.version,
            stage=UpdateStage.KEPT if stays else UpdateStage.ROLLED_BACK,
            cause=None if stays else UpdateCause.WITHDRAWN,
            detail=kept if stays else "it is not in use",
            running=self._version,
        )

    def give_sign(self, now: float) -> None:
        if now >= self._next_sign:
            self._next_sign = now + SIGN_EVERY_S
            self._slots.touch()

    def clean_up(self) -> None:
        """Tell the launcher that the environment in use is no longer watched."""
        try:
            self._slots.end_trial()
        except OSError as error:
            log.warning("the trial cannot be ended: %s", error)

    def stop(self) -> None:
        self._installer.stop()


def objection_to(offer: ClientOffer, key: TrustedKey | None, slots: ClientSlots) -> offers.Objection | None:
    """The objection to an offer; the fetched bytes must have the digest that is signed."""
    if key is None:
        return UpdateCause.UNTRUSTED, "this device trusts no key: set `trust` in client.toml to signing.pub"
    if offer.manifest is None:
        return UpdateCause.UNTRUSTED, "the release is not signed"
    try:
        manifest = check_release(
            offer.manifest, key, sha256=offer.blob.digest, federation=offer.federation, name=offer.version
        )
    except PeerError as error:
        return UpdateCause.UNTRUSTED, str(error)
    running = slots.release(slots.running())
    if running is not None and manifest.issued_at < running.issued_at:
        why = f"it was signed before {running.name}, which runs: make it again to go back on purpose"
        return UpdateCause.SUPERSEDED, why
    if why := misfit(offer.fits, offer.python, board_fit()):
        return UpdateCause.INCOMPATIBLE, why
    return _no_room(offer, slots)


def _no_room(offer: ClientOffer, slots: ClientSlots) -> offers.Objection | None:
    """Room for the archive, its wheels, and the environment that they make."""
    needed = 2 * offer.blob.size + int((1 + COMPILED_SHARE) * offer.installed_bytes) + PIP_BYTES
    free = slots.free_bytes()
    if free >= needed:
        return None
    return (
        UpdateCause.NO_SPACE,
        f"{needed / 1e6:.0f} MB are needed in {slots.root}, {free / 1e6:.0f} MB are free",
    )
