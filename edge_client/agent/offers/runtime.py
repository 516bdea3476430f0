"""Runs the machine of a trial in the agent's thread: feeds it events and executes its commands.

The offered file arrives in chunks, like the blobs of tasks. Work happens in a thread of its own; it waits for
a training to end, and so does a restart, for the installation's `max_wait_s` at most.
"""

import logging
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from edge_client.agent import restart, state_store
from edge_client.agent.offers import machine
from edge_client.agent.offers import trial as offers
from edge_client.agent.session.events import ChunkArrived, Connected, Disconnected, SendMessage, Tick
from edge_client.storage.atomic_files import write_synced
from edge_client.storage.blob_store import BlobStore
from edge_client.transport import broker_link, chunk_transfer
from schemas.errors import PeerError, Reason
from schemas.messages import ClientOffer, Message, ModelOffer
from schemas.tensors.chunks import Chunk

log = logging.getLogger(__name__)


class Installation(Protocol):
    """How one kind of version is tried and put in use: what differs between models and releases.

    `noun` names the kind in the log; `store` takes the offered file. `failure` is the cause if work fails for
    no known reason.
    """

    noun: str
    failure: StrEnum
    max_wait_s: float
    trial_type: type[offers.Trial]
    store: BlobStore

    def object_to(self, offer: Any) -> offers.Objection | None:
        """The objection to an offer before its file is fetched."""

    def find_in_use(self) -> str | None:
        """The digest of the file of the version in use."""

    def restore(self, trial: Any) -> offers.Restored:
        """What has become of the version of an earlier process's trial."""

    def do(self, work: offers.Work) -> offers.Worked:
        """In a thread: do the work."""

    def switch(self, trial: Any) -> offers.Switched | offers.SwitchFailed:
        """Put the offered version in use; repeating this changes nothing."""

    def go_back(self, trial: Any) -> offers.RolledBack:
        """Use the former version, if the offered one is in use."""

    def answer(self, withdrawal: Any) -> Message:
        """Handle the withdrawal of a version of an earlier rollout."""

    def give_sign(self, now: float) -> None:
        """Tell the launcher that the release on trial is alive."""

    def clean_up(self) -> None:
        """Remove what the trial has left, besides the fetched file."""

    def stop(self) -> None:
        """End the work; its result is dropped."""


class OfferRuntime:
    """One device's part in rollouts of one kind; `publish` sends to the server, `path` has the last trial."""

    def __init__(
        self,
        state: offers.TrialState,
        installation: Installation,
        path: Path,
        inbox: broker_link.Inbox,
        publish: Callable[[Message], None],
    ) -> None:
        self.state, self._inbox, self._publish = state, inbox, publish
        self._installation, self._store = installation, installation.store
        self._file = TrialFile(path, installation.trial_type)
        self._waiting: offers.Work | offers.Restart | None = None
        self._waits_since = 0.0
        self.thread = threading.Thread()
        self._restored = False

    def on_connected(self) -> None:
        self._step(Connected())
        self._restore()

    def on_disconnected(self) -> None:
        self._step(Disconnected())

    def tick(self, *, training: bool) -> None:
        """Begin what is due; `training`: a task is being worked on."""
        self._restore()
        now, trial = time.monotonic(), self.state.trial
        if self.state.runs_it and trial is not None and not trial.is_final:
            self._installation.give_sign(now)
        self._step(Tick())
        if not training or now - self._waits_since >= self._installation.max_wait_s:
            self._begin()

    def receive(self, message: offers.Offer | offers.Withdrawal) -> None:
        """Handle an offer or a withdrawal; raises `PeerError` for one to another device."""
        self._restore()
        if message.device != self.state.device:
            raise PeerError(f"'{message.kind}' for {message.device}", reason=Reason.WRONG_SENDER)
        if isinstance(message, ModelOffer | ClientOffer):
            self._on_offer(message)
        elif self._is_on_trial(message.rollout):
            self._step(offers.Withdrawn(message))
        else:
            self._publish(self._installation.answer(message))

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take a chunk of the offered file; False: it belongs to something else."""
        if not self.state.expects(chunk):
            return False
        self._step(ChunkArrived(chunk))
        return True

    def on_worked(self, event: offers.Worked) -> None:
        """The work that another thread was asked to do has ended."""
        self._step(event)

    def stop(self) -> None:
        self._installation.stop()
        if self.thread.is_alive():
            self.thread.join(timeout=10)

    def _restore(self) -> None:
        """Resume an earlier process's trial, once; a bad version is given up even without a connection."""
        if self._restored:
            return
        self._restored = True
        trial = self._file.load(self.state.federation, self.state.device)
        if trial is not None:
            self._step(self._installation.restore(trial))

    def _is_on_trial(self, rollout: str) -> bool:
        return self.state.trial is not None and self.state.trial.offer.rollout == rollout

    def _on_offer(self, offer: offers.Offer) -> None:
        if self.state.is_undecided or self._is_on_trial(offer.rollout):
            self._step(offers.Offered(offer))
            return
        log.info("%s %s is offered in rollout %s", self._installation.noun, offer.version, offer.rollout)
        state_store.forget_others(self._store, frozenset({offer.blob.digest}))
        objection = self._installation.object_to(offer)
        in_use = self._installation.find_in_use()
        self._step(offers.Offered(offer, self._store.present(offer.blob), in_use, objection))

    # --- steps ---
    def _step(self, event: offers.Event) -> None:
        before = self.state
        self.state, commands = machine.step(before, event, time.monotonic())
        now = self.state.trial
        if now is not None and (before.trial is None or before.trial.stage is not now.stage):
            log.info("%s %s: %s", self._installation.noun, now.offer.version, now.stage_text())
        try:
            self._file.save(self.state.trial)
        except OSError as error:
            log.warning("the trial cannot be saved: %s", error)
            # Never switch without a saved trial: after a power cut nothing would end or report it.
            if any(isinstance(command, offers.Switch) for command in commands) and not self.state.runs_it:
                assert now is not None
                self._step(
                    offers.SwitchFailed((now.causes("no-space"), f"the trial cannot be saved: {error}"))
                )
                return
        for command in commands:
            self._do(command)

    def _do(self, command: offers.Command) -> None:
        match command:
            case SendMessage(message):
                self._publish(message)
            case chunk_transfer.WriteChunk():
                if (lost := state_store.keep_chunk(self._store, command)) is not None:
                    self._step(lost)
            case chunk_transfer.VerifyBlob(ref):
                self._step(state_store.keep_blob(self._store, ref))
            case offers.Work() | offers.Restart():
                self._waiting, self._waits_since = command, time.monotonic()
            case offers.Switch(trial):
                self._step(self._installation.switch(trial))
            case offers.RollBack(trial):
                self._step(self._installation.go_back(trial))
            case offers.CleanUp():
                self._waiting = None
                self._installation.clean_up()
                state_store.forget_others(self._store, frozenset())

    def _begin(self) -> None:
        """Begin what has waited, once the work before it has ended."""
        command = self._waiting
        if command is None or self.thread.is_alive():
            return
        self._waiting = None
        if isinstance(command, offers.Restart):
            self._inbox.put(restart.RestartWanted())
            return
        self.thread = threading.Thread(target=self._work, args=(command,), name="offer", daemon=True)
        self.thread.start()

    def _work(self, work: offers.Work) -> None:
        """In a thread: do the work and report its end, whatever happens."""
        try:
            ended = self._installation.do(work)
        except Exception as error:
            log.exception("%s %s cannot be tried", self._installation.noun, work.offer.version)
            ended = offers.Worked(
                work, objection=(self._installation.failure, f"{type(error).__name__}: {error}")
            )
        self._inbox.put(ended)


class TrialFile:
    """The file in which a device keeps its last trial of a kind; `OSError` if it cannot be written."""

    def __init__(self, path: Path, kind: type[offers.Trial]) -> None:
        self._path, self._kind = path, kind
        self._last: offers.Trial | None = None

    def load(self, federation: str, device: str) -> offers.Trial | None:
        """The last trial, if it belongs to this device."""
        try:
            trial = self._kind.parse(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return None
        if (trial.offer.federation, trial.offer.device) != (federation, device):
            log.warning("%s is ignored: it belongs to %s", self._path, trial.offer.device)
            return None
        return trial

    def save(self, trial: offers.Trial | None) -> None:
        """Write the trial, if it has changed."""
        if trial is None or trial == self._last:
            return
        write_synced(self._path, trial.model_dump_json().encode())
        self._last = trial
