"""Runs the trial's state machine in the agent's thread: feeds it events and executes its commands.

The offered file arrives in chunks, like the blobs of tasks. Comparisons wait for training to end, for
`LONGEST_WAIT_S` at most.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

from edge_client.agent.disk_errors import forget_others, keep_blob, keep_chunk
from edge_client.agent.offers.progress_file import ProgressFile
from edge_client.agent.rollout import trial as machine
from edge_client.agent.rollout.comparison import ComparisonRunner, ModelPair
from edge_client.agent.rollout.events import (
    Command,
    Compare,
    Compared,
    Comparison,
    ComparisonEnded,
    DiscardFiles,
    Event,
    Objection,
    Offered,
    Recheck,
    Rechecked,
    RollBack,
    Switch,
    SwitchFailed,
    TrialRestored,
    Withdrawn,
    trial_path,
)
from edge_client.agent.rollout.slot_switch import ServingSlots
from edge_client.agent.rollout.state import Trial, TrialState
from edge_client.agent.session.events import ChunkArrived, Connected, Disconnected, SendMessage, Tick
from edge_client.agent.settings import AgentSettings
from edge_client.data.local import LocalData
from edge_client.inference.quantization.selection import EXPORT_ALONE
from edge_client.security.trusted_key import TrustedKey
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.free_space import check_free
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_client.transport.link_events import Inbox
from schemas.errors import PeerError
from schemas.messages import Message, ModelOffer, ModelWithdrawal, decode_message
from schemas.messages.rollout_terms import Cause
from schemas.tensors.chunks import Chunk
from schemas.values import Reason

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 120.0
"""Seconds that a comparison waits for a training to end."""


class RolloutRuntime:
    """One device's part in rollouts; `publish` sends to the server's rollout topic."""

    def __init__(
        self, settings: AgentSettings, data: LocalData, inbox: Inbox, publish: Callable[[Message], None]
    ) -> None:
        self._settings, self._inbox, self._publish = settings, inbox, publish
        folder = settings.state / "rollout"
        self._store = BlobStore(folder / "blobs")
        self._slots = ServingSlots(settings.state, self._store)
        # Only the original file is signed: a device that requires signatures serves no other variant.
        variants = settings.variants if settings.trust is None else EXPORT_ALONE
        self._comparisons = ComparisonRunner(data, folder / "examples.npz", variants)
        self._file = ProgressFile(trial_path(settings.state), Trial.model_validate_json)
        self._waiting: Compare | Recheck | None = None
        self._waits_since = 0.0
        self._restored = False
        self._trials = TrialState(settings.federation, settings.device)

    def connected(self) -> None:
        self._step(Connected())
        self._restore()

    def disconnected(self) -> None:
        self._step(Disconnected())

    def tick(self, *, training: bool) -> None:
        """Begin what is due; `training`: a task is being worked on."""
        self._restore()
        self._step(Tick())
        if self._waiting is not None:
            waited = time.monotonic() - self._waits_since
            if not training or waited >= LONGEST_WAIT_S:
                self._begin(self._waiting)

    def receive(self, payload: bytes) -> None:
        """Handle a message of this device's rollout topic; raises `PeerError` for any other message."""
        message = decode_message(payload, federation=self._settings.federation)
        if not isinstance(message, ModelOffer | ModelWithdrawal):
            raise PeerError(f"'{message.kind}' does not belong on this topic", reason=Reason.UNKNOWN_KIND)
        if message.device != self._settings.device:
            raise PeerError(f"'{message.kind}' for {message.device}", reason=Reason.WRONG_SENDER)
        if isinstance(message, ModelOffer):
            self._offered(message)
        elif self._trials.trial is not None and self._trials.trial.offer.rollout == message.rollout:
            self._step(Withdrawn(message))
        else:
            self._publish(self._slots.withdrawn(message))

    def use_data(self, data: LocalData) -> None:
        self._comparisons.use_data(data)

    def take_chunk(self, chunk: Chunk) -> bool:
        """Take a chunk of the offered file; False: it belongs to something else."""
        if not self._trials.expects(chunk):
            return False
        self._step(ChunkArrived(chunk))
        return True

    def comparison_ended(self, event: ComparisonEnded) -> None:
        rollout = event.command.offer.rollout
        if isinstance(event.command, Compare):
            self._step(Compared(rollout, event.comparison))
            return
        before, after = self._slots.health()
        self._step(Rechecked(rollout, event.comparison, self._slots.serving(), before, after))

    def stop(self) -> None:
        self._comparisons.stop()

    def _restore(self) -> None:
        """Resume an earlier process's trial, once; a bad model is rolled back even without a connection."""
        if self._restored:
            return
        self._restored = True
        trial = self._file.load(self._settings.federation, self._settings.device)
        if trial is not None:
            self._step(TrialRestored(trial, self._store.present(trial.offer.blob)))

    def _offered(self, offer: ModelOffer) -> None:
        known = self._trials.trial
        if known is not None and known.offer.rollout == offer.rollout:
            self._step(Offered(offer))
            return
        log.info("version %s is offered in rollout %s", offer.version, offer.rollout)
        forget_others(self._store, frozenset({offer.blob.digest}))
        objection = objection_to(offer, self._settings.trust) or self._no_room(offer)
        present = self._store.present(offer.blob)
        self._step(Offered(offer, present, self._slots.serving_file(), objection))

    def _no_room(self, offer: ModelOffer) -> Objection | None:
        """The objection to a file that has no room beside the copy that is served."""
        try:
            check_free(self._store.directory, 2 * offer.blob.size)
        except PeerError as error:
            return Cause.NO_SPACE, str(error)
        return None

    def _step(self, event: Event) -> None:
        before = self._trials
        self._trials, commands = machine.step(before, event, time.monotonic())
        self._log_stage(before)
        try:
            self._file.save(self._trials.trial)
        except OSError as error:
            log.warning("the trial cannot be saved: %s", error)
            # Never switch without a saved trial: after a power cut nothing would end it.
            if any(isinstance(command, Switch) for command in commands):
                commands = []
                self._step(SwitchFailed(Cause.NO_SPACE, f"the trial cannot be saved: {error}"))
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
            case Compare() | Recheck():
                self._waiting, self._waits_since = command, time.monotonic()
            case Switch(trial):
                self._step(self._slots.switch(trial))
            case RollBack(digest):
                self._step(self._slots.go_back(digest))
            case DiscardFiles():
                self._waiting = None
                self._comparisons.forget()
                self._slots.forget()
                forget_others(self._store, frozenset())

    def _begin(self, command: Compare | Recheck) -> None:
        self._waiting = None
        pair = self._pair(command)
        report = partial(self._report_comparison, command)
        if pair is None:
            report(Comparison(objection=(Cause.SUPERSEDED, "no model is in use")))
        else:
            self._comparisons.begin(pair, command.offer.terms.examples, report)

    def _pair(self, command: Compare | Recheck) -> ModelPair | None:
        if isinstance(command, Compare):
            return self._slots.before_the_switch(command.offer)
        return self._slots.after_the_switch()

    def _report_comparison(self, command: Compare | Recheck, comparison: Comparison) -> None:
        self._inbox.put(ComparisonEnded(command, comparison))

    def _log_stage(self, before: TrialState) -> None:
        now = self._trials.trial
        if now is not None and (before.trial is None or before.trial.stage is not now.stage):
            log.info("version %s: %s", now.offer.version, now.stage_text())


def objection_to(offer: ModelOffer, key: TrustedKey | None) -> Objection | None:
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
        return (
            Cause.UNTRUSTED,
            f"what is signed is a {named[0]} of tier {named[2]} in {named[1]}, not this file",
        )
    return None
