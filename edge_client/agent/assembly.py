"""Builds an agent's link and services from its settings."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edge_client.agent import lazy_services, server_contact
from edge_client.agent.announcer import Announcer, WorkTelemetry
from edge_client.agent.eligibility.machine import GiveBack, Hold, ReportVerdict, Resume
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.eligibility.rules import Veto, objection
from edge_client.agent.presence import Presence
from edge_client.agent.service import Service, Topic
from edge_client.agent.session import events, machine
from edge_client.agent.session.state import Session
from edge_client.agent.session_runner import BlobWatch, DataWatch, SessionRunner
from edge_client.agent.settings import AgentSettings, TaskContext
from edge_client.agent.state_store import StateStore
from edge_client.agent.worker import Housekeeping, Worker
from edge_client.data.local import DataFeed, LocalData
from edge_client.inference import installed_model
from edge_client.security.task_verifier import TaskVerifier
from edge_client.security.trusted_key import TrustedKey, make_untrusted_error
from edge_client.transport.broker_link import Arrived, Inbox
from edge_client.transport.mqtt_client import Link
from schemas.errors import PeerError, Reason
from schemas.messages import Acknowledgement, AnyMessage, DeliverTask, Refusal, Task, TrainTask
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import decode_chunk
from schemas.topics import Channel, DeviceTopic, SharedTopic, StateTopic, device_filters


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
        messenger: server_contact.Messenger,
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
                self._runner.step(events.ChunkArrived(decode_chunk(arrived.payload)))
            case SharedTopic():
                self._runner.step(events.ChunkArrived(decode_chunk(arrived.payload), shared=True))
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
        self._runner.step(events.Received(message))

    def _refuse_superseded(self, message: AnyMessage) -> None:
        """Refuse what a server says that another one has replaced, and count it."""
        try:
            machine.check_epoch(self._runner.session, message)
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
            self._runner.step(events.Declined(task, Reason(error.reason), str(error)))
            raise
        begun, data = self._runner.session.is_at(task.run, task.attempt), self._runner.context.data
        held_out, trained_on = len(data.held_out), len(data.train)
        if not begun and (why := objection(self._veto, task, trained_on=trained_on, held_out=held_out)):
            log.warning("round %d: declined, by [veto]: %s", task.round, why)
            self._runner.step(events.Declined(task, Reason.INELIGIBLE, why))
        elif not begun and isinstance(task, TrainTask) and not self._eligibility.state.may_train:
            self._runner.step(events.Declined(task, Reason.INELIGIBLE, self._eligibility.verdict.detail))
        else:
            self._runner.step(events.Received(task, self._runner.stored_chunks(task)))

    def _on_refusal(self, refusal: Refusal) -> None:
        if refusal.attempt is None and refusal.reason not in LOGGED_ELSEWHERE:
            about_it = {"reason": refusal.reason}
            log.warning("the server refuses (%s): %s", refusal.reason, refusal.detail, extra=about_it)
        if refusal.run is None:
            self._announcer.on_refusal(refusal)


log = logging.getLogger(__name__)


class EligibilityService(Service):
    """Applies the eligibility rules to the agent: holds training, gives tasks back, reports the verdict."""

    def __init__(
        self, monitor: EligibilityMonitor, worker: Worker, runner: SessionRunner, announcer: Announcer
    ) -> None:
        self._monitor, self._worker = monitor, worker
        self._runner, self._announcer = runner, announcer

    def tick(self, now: float, session: Session) -> None:
        task = session.task
        at_work = task is not None and task.plan is not None and session.result is None
        for command in self._monitor.check(now, at_work=at_work):
            match command:
                case Hold():
                    self._worker.hold()
                case Resume():
                    self._worker.resume()
                case GiveBack(detail) if isinstance(task, DeliverTask):
                    self._worker.give_up_training(detail)
                case GiveBack(detail):
                    log.warning("the task is given back: %s", detail)
                    self._runner.step(events.GivenBack(detail))
                case ReportVerdict(verdict):
                    log.warning("%s%s", verdict.eligibility, f": {verdict.detail}" if verdict.detail else "")
                    self._announcer.announce()


if TYPE_CHECKING:
    from edge_client.security.identity.certificate_renewer import CertificateRenewer


class Parts(NamedTuple):
    """The parts of an agent; `services` in the order in which they are called, `runner` among them."""

    link: Link
    runner: SessionRunner
    services: tuple[Service, ...]


def assemble(
    settings: AgentSettings, data: LocalData, inbox: Inbox, *, root: Path, feed: DataFeed | None
) -> Parts:
    """Build the parts of one device's agent, without connecting.

    The order of the services matters: a birth comes before all other messages of a connection, and the
    rollout and the client's update take the chunks of their own files before the session sees them.
    """
    state_store = StateStore(settings)
    context = _make_context(settings, state_store, data, root, feed)
    policy = SignaturePolicy(settings.federation, settings.device, settings.state, settings.trust)
    worker, renewer = Worker(inbox, settings.trainers()), lazy_services.open_renewer(settings)
    presence = Presence(settings, data, lambda: renewer.valid_until if renewer else None)
    link = make_link(settings, inbox, presence, renewer)
    messenger = server_contact.Messenger(link, settings.federation, settings.device)
    telemetry = WorkTelemetry(settings, presence, messenger, root=root)
    monitor = EligibilityMonitor.of_board(settings.eligibility, cores=settings.profile.cores, root=root)
    announcer = Announcer(settings, presence, messenger, monitor)
    runner = SessionRunner(settings, context, state_store, messenger, worker, inbox, telemetry)
    return Parts(
        link,
        runner,
        (
            announcer,
            telemetry,
            *([lazy_services.CertificateService(renewer, link, messenger)] if renewer else []),
            EligibilityService(monitor, worker, runner, announcer),
            runner,
            lazy_services.LazyRollout(settings, data, inbox, messenger),
            lazy_services.LazyDiagnostics(settings, inbox, messenger, root=root),
            lazy_services.LazyClientUpdate(settings, inbox, messenger),
            MessageIntake(messenger, runner, policy, monitor, announcer, settings.veto),
            *([DataWatch(worker, runner, every_s=settings.watch_data_s)] if feed else []),
            BlobWatch(runner),
            Housekeeping(worker),
        ),
    )


def _make_context(
    settings: AgentSettings, state_store: StateStore, data: LocalData, root: Path, feed: DataFeed | None
) -> TaskContext:
    return TaskContext(
        settings.device,
        state_store.blobs,
        data,
        settings.state / "models",
        model_code=settings.model_code,
        private=state_store.private,
        signed_only=settings.trust is not None,
        checkpoints=state_store.checkpoints,
        features=state_store.features,
        variants=settings.variants,
        providers=settings.providers,
        board=root,
        min_examples=settings.min_examples,
        fewest_to_train=settings.veto.min_examples,
        feed=feed,
    )


def make_link(
    settings: AgentSettings, inbox: Inbox, presence: Presence, renewer: "CertificateRenewer | None"
) -> Link:
    filters = device_filters(settings.federation, settings.device)
    return Link(
        settings.address,
        inbox,
        client_id=f"{settings.federation}-{settings.device}",
        filters=(*filters, *(renewer.filters if renewer else ())),
        will=presence.will,
        first_session=presence.next_session(),
        evidence=[str(DeviceTopic(settings.federation, settings.device, Channel.BIRTH))],
    )
