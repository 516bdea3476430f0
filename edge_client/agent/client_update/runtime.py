"""Runs the update's state machine in the agent's thread: feeds it events and executes its commands.

Installing and checking happen in a thread of their own. They wait for a training to end, and so does the
restart, for `LONGEST_WAIT_S` at most.
"""

import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edge_client.agent.client_update import machine
from edge_client.agent.client_update.events import (
    Check,
    Command,
    DiscardFiles,
    EndTrial,
    Event,
    Failed,
    Install,
    Installed,
    Objection,
    Offered,
    Restart,
    RollBack,
    RolledBack,
    Switch,
    Switched,
    UpdateRestored,
    Withdrawn,
    WorkEnded,
    update_path,
)
from edge_client.agent.client_update.installer import ReleaseInstaller
from edge_client.agent.client_update.offer_check import objection_to
from edge_client.agent.client_update.slots import ClientSlots
from edge_client.agent.client_update.state import Update, UpdateState
from edge_client.agent.disk_errors import forget_others, keep_blob, keep_chunk
from edge_client.agent.offers.progress_file import ProgressFile
from edge_client.agent.restart import RestartWanted
from edge_client.agent.session.events import ChunkArrived, Connected, Disconnected, SendMessage, Tick
from edge_client.agent.settings import AgentSettings
from edge_client.storage.blob_store import BlobStore
from edge_client.system.hardware.versions import release
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_client.transport.link_events import Inbox
from schemas.errors import PeerError
from schemas.messages import ClientOffer, ClientReport, ClientWithdrawal, Message
from schemas.messages.client_update import UpdateCause, UpdateStage
from schemas.tensors.chunks import Chunk
from schemas.values import Reason

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 600.0
"""Seconds that an installation or a restart waits for a training to end."""
SIGN_EVERY_S = 2.0


class UpdateRuntime:
    """One device's part in updates of its client; `publish` sends to the fleet topic."""

    def __init__(
        self,
        settings: AgentSettings,
        slots: ClientSlots,
        inbox: Inbox,
        publish: Callable[[Message], None],
        *,
        installer: ReleaseInstaller | None = None,
    ) -> None:
        self._settings, self._slots, self._inbox, self._publish = settings, slots, inbox, publish
        self._store = BlobStore(slots.root / "blobs")
        self._installer = installer or ReleaseInstaller(slots, settings.state)
        self._file = update_file(update_path(slots.root))
        self._waiting: Install | Check | Restart | None = None
        self._waits_since = self._next_sign = 0.0
        self._thread = threading.Thread()
        self._restored = False
        version = release("edge-federation") or ""
        self._state = UpdateState(settings.federation, settings.device, version=version)

    def connected(self) -> None:
        """The broker has accepted the connection."""
        self._restore()
        self._step(Connected())

    def disconnected(self) -> None:
        """The connection is lost."""
        self._step(Disconnected())

    def tick(self, *, training: bool) -> None:
        """Begin what is due, and give the launcher a sign of life; `training`: a task is being worked on."""
        self._restore()
        now = time.monotonic()
        if self._state.on_trial and now >= self._next_sign:
            self._next_sign = now + SIGN_EVERY_S
            self._slots.touch()
        self._step(Tick())
        if self._waiting is not None and (not training or now - self._waits_since >= LONGEST_WAIT_S):
            self._begin(self._waiting)

    def receive(self, message: ClientOffer | ClientWithdrawal) -> None:
        """Handle a message of this device's fleet topic; raises `PeerError` for one to another device."""
        self._restore()
        if message.device != self._settings.device:
            raise PeerError(f"'{message.kind}' for {message.device}", reason=Reason.WRONG_SENDER)
        known = self._state.update
        if isinstance(message, ClientOffer):
            self._offered(message)
        elif known is not None and known.offer.rollout == message.rollout:
            self._step(Withdrawn(message))
        else:
            self._publish(self._not_known(message))

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take a chunk of the offered archive; False: it belongs to something else."""
        if not self._state.expects(chunk):
            return False
        self._step(ChunkArrived(chunk))
        return True

    def work_ended(self, ended: WorkEnded) -> None:
        """An installation or a check has ended."""
        self._step(ended.event)

    def stop(self) -> None:
        """The process ends."""
        self._installer.stop()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    # --- the update of an earlier process ---
    def _restore(self) -> None:
        """Resume it, once; a bad release is given up even without a connection."""
        if self._restored:
            return
        self._restored = True
        update = self._file.load(self._settings.federation, self._settings.device)
        if update is not None:
            present = self._store.present(update.offer.blob)
            self._step(UpdateRestored(update, present, self._runs(update.offer), self._back(update.offer)))

    def _runs(self, offer: ClientOffer) -> bool:
        found = self._slots.release(self._slots.running())
        return found is not None and found.digest == offer.blob.digest

    def _back(self, offer: ClientOffer) -> Objection | None:
        """Why the launcher has gone back from this release, if it has."""
        trial = self._slots.trial()
        back = trial.get("back") if trial is not None and trial.get("rollout") == offer.rollout else None
        if not back:
            return None
        cause = str(back.get("cause"))
        known = UpdateCause(cause) if cause in set(UpdateCause) else UpdateCause.CRASHES
        return known, str(back.get("detail", ""))

    # --- offers ---
    def _offered(self, offer: ClientOffer) -> None:
        known = self._state.update
        if machine.is_undecided(known) or (known is not None and known.offer.rollout == offer.rollout):
            self._step(Offered(offer))
            return
        log.info("client release %s is offered in rollout %s", offer.version, offer.rollout)
        forget_others(self._store, frozenset({offer.blob.digest}))
        running = self._slots.release(self._slots.running())
        objection = objection_to(offer, self._settings.trust, self._slots)
        digest = None if running is None else running.digest
        self._step(Offered(offer, self._store.present(offer.blob), digest, objection))

    def _not_known(self, message: ClientWithdrawal) -> ClientReport:
        return ClientReport(
            federation=message.federation,
            device=message.device,
            rollout=message.rollout,
            version=message.version,
            stage=UpdateStage.ROLLED_BACK,
            cause=UpdateCause.WITHDRAWN,
            detail="it was not installed by this rollout",
            running=self._state.version,
        )

    # --- steps ---
    def _step(self, event: Event) -> None:
        before = self._state
        self._state, commands = machine.step(before, event, time.monotonic())
        self._log_stage(before)
        try:
            self._file.save(self._state.update)
        except OSError as error:
            log.warning("the update cannot be saved: %s", error)
            # Never switch without a saved update: after a power cut nobody would report how it ended.
            if any(isinstance(command, Switch) for command in commands) and not self._state.runs_it:
                assert self._state.update is not None
                rollout, why = self._state.update.offer.rollout, f"the update cannot be saved: {error}"
                self._step(Failed(rollout, (UpdateCause.NO_SPACE, why)))
                return
        for command in commands:
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case SendMessage(message):
                self._publish(message)
            case WriteChunk():
                if (lost := keep_chunk(self._store, command)) is not None:
                    self._step(lost)
            case VerifyBlob(ref):
                self._step(keep_blob(self._store, ref))
            case Install() | Check() | Restart():
                self._waiting, self._waits_since = command, time.monotonic()
            case Switch(offer):
                self._step(self._switch(offer))
            case RollBack(update):
                self._step(self._go_back(update))
            case EndTrial():
                self._end_trial()
            case DiscardFiles():
                self._waiting = None
                forget_others(self._store, frozenset())

    def _begin(self, command: Install | Check | Restart) -> None:
        if self._thread.is_alive():
            return
        self._waiting = None
        if isinstance(command, Restart):
            self._inbox.put(RestartWanted())
            return
        self._thread = threading.Thread(target=self._work, args=(command,), name="update", daemon=True)
        self._thread.start()

    def _work(self, command: Install | Check) -> None:
        """In a thread: install or check, and report the end, whatever happens."""
        offer = command.offer
        try:
            ended = self._installer.check(offer) if isinstance(command, Check) else self._install(offer)
        except Exception as error:
            log.exception("client release %s cannot be tried", offer.version)
            ended = Failed(offer.rollout, (UpdateCause.NOT_INSTALLED, f"{type(error).__name__}: {error}"))
        self._inbox.put(WorkEnded(ended))

    def _install(self, offer: ClientOffer) -> Installed | Failed:
        issued_at = 0 if offer.manifest is None else offer.manifest.manifest.issued_at
        return self._installer.install(offer, self._store.path(offer.blob.digest), issued_at)

    def _end_trial(self) -> None:
        try:
            self._slots.end_trial()
        except OSError as error:
            log.warning("the trial cannot be ended: %s", error)

    def _switch(self, offer: ClientOffer) -> Switched | Failed:
        """Let the next start be one of the release; repeating this changes nothing."""
        slot = self._slots.running() if self._state.runs_it else self._slots.spare().name
        try:
            if not self._state.runs_it and not self._slots.holds(slot, offer.blob.digest):
                raise OSError(f"{slot} does not hold the whole release")
            self._slots.begin_trial(slot, {"rollout": offer.rollout, "version": offer.version}, offer.terms)
        except OSError as error:
            return Failed(offer.rollout, (UpdateCause.NOT_INSTALLED, f"it cannot be switched to: {error}"))
        trial = self._slots.trial()
        return Switched(slot, "" if trial is None else str(trial["former"]))

    def _go_back(self, update: Update) -> RolledBack:
        """Let the next start be one of the former environment."""
        try:
            changed = self._slots.go_back(update.slot, update.former, update.cause or "", update.detail)
        except OSError as error:
            return RolledBack(f"the former version cannot be put back: {error}")
        if changed or self._slots.current() == update.former:
            return RolledBack(restarts=self._state.runs_it)
        return RolledBack("there is no former version to go back to: this one goes on")

    def _log_stage(self, before: UpdateState) -> None:
        now = self._state.update
        if now is not None and (before.update is None or before.update.stage is not now.stage):
            log.info("client release %s: %s", now.offer.version, now.stage_text())


def update_file(path: Path) -> ProgressFile[Update]:
    return ProgressFile(path, _update_in)


def _update_in(data: bytes) -> Update:
    """The update in a file that another version may have written: fields that this one lacks are left out."""
    stored = json.loads(data)
    offer = {name: value for name, value in stored["offer"].items() if name in ClientOffer.model_fields}
    return Update.model_validate_json(json.dumps({**stored, "offer": offer}))
