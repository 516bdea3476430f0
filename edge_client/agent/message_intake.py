"""Decodes what the server sends, checks it against the device's policies and passes it to the session."""

import logging
from pathlib import Path

from edge_client.agent.announcer import Announcer
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.messenger import Messenger
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.epochs import check_epoch
from edge_client.agent.session.events import ChunkArrived, Declined, Received
from edge_client.agent.session_runner import SessionRunner
from edge_client.agent.veto import Veto, objection
from edge_client.inference import installed_model
from edge_client.security.task_verifier import TaskVerifier
from edge_client.security.trusted_key import TrustedKey, make_untrusted_error
from edge_client.transport.link_events import Arrived
from schemas.errors import PeerError
from schemas.messages import Acknowledgement, AnyMessage, Refusal, Task, TrainTask
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import decode_chunk
from schemas.topics import Channel, DeviceTopic, SharedTopic, StateTopic
from schemas.values import Reason

log = logging.getLogger(__name__)


class SignaturePolicy:
    """Checks each message of the server; without a key every task is accepted.

    The folder `state` holds the models, and the newest task seen, which excludes replays.
    """

    def __init__(self, federation: str, device: str, state: Path, key: TrustedKey | None) -> None:
        self._federation, self._device = federation, device
        self._models = state / "models"
        self._key = key
        self._verifier = (
            None if key is None else TaskVerifier(key, federation, device, state / "newest-task.json")
        )
        installed_model.repair(self._models)

    def check(self, message: AnyMessage) -> None:
        """Raises `PeerError` for a task or a model's manifest that the trusted key has not signed."""
        if isinstance(message, Task) and self._verifier is not None:
            self._verifier.admit(message)
        if isinstance(message, Acknowledgement) and message.manifest is not None:
            self._take_signature(message.manifest)

    def _take_signature(self, signed: SignedManifest) -> None:
        manifest = signed.manifest if self._key is None else self._key.check(signed)
        named = (manifest.what, manifest.federation, manifest.device)
        if named != ("device-export", self._federation, self._device):
            raise make_untrusted_error(
                f"the manifest is of a {named[0]} for {named[2]} in {named[1]}, not of this model"
            )
        if installed_model.take_signature(self._models, signed):
            log.info("the server has signed the model of run %s", manifest.run)


LOGGED_ELSEWHERE = frozenset({Reason.UNKNOWN_BLOB, Reason.SAME_NAME})
"""Refusals that answer a question of the device, or that the announcer logs."""


class MessageIntake(Service):
    """Turns what the server sends into events of the session.

    `superseded` counts the messages of servers that were replaced.
    """

    def __init__(
        self,
        messenger: Messenger,
        runner: SessionRunner,
        policy: SignaturePolicy,
        eligibility: EligibilityMonitor,
        announcer: Announcer,
        veto: Veto,
    ) -> None:
        self._messenger, self._runner, self._policy = messenger, runner, policy
        self._eligibility, self._announcer, self._veto = eligibility, announcer, veto
        self.superseded = 0

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        match topic:
            case DeviceTopic(channel=Channel.DOWN_BLOB):
                self._runner.step(ChunkArrived(decode_chunk(arrived.payload)))
            case SharedTopic():
                self._runner.step(ChunkArrived(decode_chunk(arrived.payload), shared=True))
            case DeviceTopic(channel=Channel.DOWN) | StateTopic():
                if arrived.payload:
                    self._message(self._messenger.decode(arrived.payload))
            case _:
                return False
        return True

    def _message(self, message: AnyMessage) -> None:
        self._refuse_superseded(message)
        if isinstance(message, Task):
            self._on_task(message)
            return
        self._policy.check(message)
        if isinstance(message, Refusal):
            self._on_refusal(message)
        self._runner.step(Received(message))

    def _refuse_superseded(self, message: AnyMessage) -> None:
        """Refuse what a server says that another one has replaced, and count it."""
        try:
            check_epoch(self._runner.session, message)
        except PeerError as error:
            self.superseded += 1
            self._messenger.refuse(error)
            raise

    def _on_task(self, task: Task) -> None:
        """Decline a task that is not signed, does not fit the data, is forbidden by the device's owner, or
        may not begin now; else pass it on.
        """
        try:
            self._policy.check(task)
            if why := task.excess():
                raise PeerError(why, reason=Reason.OVERSIZED)
            self._runner.check_room(task)
            if task.blobs:
                # The server has measured which sizes the broker passes on.
                self._runner.limit_chunks(min(ref.chunk_bytes for ref in task.blobs.values()))
            self._runner.context.data.check(task)
        except PeerError as error:
            self._runner.step(Declined(task, Reason(error.reason), str(error)))
            raise
        begun, data = self._runner.session.is_at(task.run, task.attempt), self._runner.context.data
        held_out, trained_on = len(data.held_out), len(data.train)
        if not begun and (why := objection(self._veto, task, trained_on=trained_on, held_out=held_out)):
            log.warning("round %d: declined, by [veto]: %s", task.round, why)
            self._runner.step(Declined(task, Reason.INELIGIBLE, why))
        elif not begun and isinstance(task, TrainTask) and not self._eligibility.state.may_train:
            self._runner.step(Declined(task, Reason.INELIGIBLE, self._eligibility.verdict.detail))
        else:
            self._runner.step(Received(task, self._runner.stored_chunks(task)))

    def _on_refusal(self, refusal: Refusal) -> None:
        if refusal.attempt is None and refusal.reason not in LOGGED_ELSEWHERE:
            about_it = {"reason": refusal.reason}
            log.warning("the server refuses (%s): %s", refusal.reason, refusal.detail, extra=about_it)
        if refusal.run is None:
            self._announcer.on_refusal(refusal)
