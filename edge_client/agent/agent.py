"""The device's edge to the outside world: it carries out what the session's state machine decides.

One thread owns everything here; paho and the worker only put events in its inbox.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.agent import server_contact
from edge_client.agent.disk_errors import keep_blob, keep_chunk
from edge_client.agent.eligibility.machine import GiveBack, Hold, ReportVerdict, Resume
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.presence import Presence
from edge_client.agent.rollout.events import ComparisonEnded
from edge_client.agent.rollout.lazy_start import LazyRollout
from edge_client.agent.server_contact import ServerContact
from edge_client.agent.session import machine, results
from edge_client.agent.session.events import (
    ChunkArrived,
    Command,
    Connected,
    Declined,
    Disconnected,
    DrawEntropy,
    EntropyDrawn,
    Event,
    GivenBack,
    MaskUpdate,
    Received,
    RunEnded,
    SendChunks,
    SendMessage,
    SessionRestored,
    Settled,
    StartWork,
    StopWork,
    Tick,
    UpdateMasked,
    WorkDone,
    WorkFailed,
)
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.agent.session.secure_participation import SecureParticipation
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.agent.settings import AgentSettings
from edge_client.agent.signature_policy import SignaturePolicy
from edge_client.agent.state_store import StateStore
from edge_client.agent.task_context import TaskContext
from edge_client.agent.telemetry import WorkTelemetry
from edge_client.agent.worker import DataChanged, Progress, Worker
from edge_client.data.local import LocalData
from edge_client.security.secure_aggregation.keys import ENTROPY_BYTES
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.logging.context import about
from edge_client.system.process_memory import GivingBack
from edge_client.system.watchdog import watchdog_of
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_client.transport.connection_attempts import Reaching, same_name
from edge_client.transport.mqtt_client import Arrived, Inbox, Link, LinkDown, LinkEvent, LinkUp
from edge_client.transport.object_store.http import web_of
from edge_client.transport.object_store.http_transfers import Fetch, FetchEnded, Put, PutEnded, StopTransfers
from edge_client.transport.object_store.transfer_threads import Carrier
from schemas.errors import PeerError
from schemas.messages import (
    AnyMessage,
    FederationEnd,
    Message,
    Refusal,
    Task,
    Telemetry,
    decode_message,
    encode_message,
)
from schemas.tensors.chunks import decode_chunk
from schemas.topics import (
    Channel,
    DeviceTopic,
    EnrolTopic,
    SharedTopic,
    StateTopic,
    device_filters,
    parse_topic,
)
from schemas.values import Reason

if TYPE_CHECKING:
    from edge_client.security.identity.certificate_renewer import Keeper

__all__ = ["Agent", "AgentSettings", "Stop"]

log = logging.getLogger(__name__)

TICK_S = 0.25
WARM_UP_AFTER_S = 3.0
"""After connecting: where a whole federation starts on one machine, torch is not imported in its way."""


NOBODY = (
    "connected, but no server has answered for %.0f s: does `edge-server run` run, is its federation called"
    " '%s', and is its broker %s?"
)
TOLD_OTHERWISE = frozenset({Reason.UNKNOWN_BLOB, Reason.SAME_NAME})
"""Refusals that answer a question of the device, or have a line of their own."""
MOST_RIVALRIES = 3
"""So often a device hears that its name is another's before it leaves it to that one."""


@dataclass(frozen=True)
class Stop:
    """Event: the user asked for an end."""


class Agent:
    """Runs one device until it is stopped; below `root` lie the files by which the board tells of itself.

    `look_again` is asked before each task for the data where it has changed.
    """

    def __init__(
        self,
        settings: AgentSettings,
        data: LocalData,
        *,
        root: Path = ROOT,
        look_again: Callable[[], LocalData | None] | None = None,
    ) -> None:
        self._settings = settings
        self.inbox: Inbox = queue.SimpleQueue()
        self._belongings = StateStore(settings)
        self._store = self._belongings.store
        self._place = TaskContext(
            settings.device,
            self._store,
            data,
            settings.state / "models",
            model_code=settings.model_code,
            private=self._belongings.private,
            signed_only=settings.trust is not None,
            checkpoints=self._belongings.checkpoints,
            wish=settings.wish,
            board=root,
            work=settings.work,
            look_again=look_again,
        )
        self._said_few = False
        self._signed = SignaturePolicy(settings.federation, settings.device, settings.state, settings.trust)
        self._earlier: SessionSnapshot | None = self._belongings.wake()
        self._worker = Worker(self.inbox, threads=settings.threads)
        self._carrier = Carrier(self.inbox, self._store, web_of(settings.address.tls))
        self._keeper = keeper = _keeper(settings)
        self._presence = Presence(settings, data.train, lambda: keeper.valid_until if keeper else None)
        self._telemetry = WorkTelemetry(settings, self._presence, root=root)
        self._watch = EligibilityMonitor.of_board(
            settings.eligibility, cores=settings.profile.cores, root=root
        )
        kept = self._keeper.filters if self._keeper else ()
        self._link = Link(
            settings.address,
            self.inbox,
            client_id=f"{settings.federation}-{settings.device}",
            filters=(*device_filters(settings.federation, settings.device), *kept),
            will=self._presence.will,
            first_session=self._presence.next_session(),
        )
        self._session = Session(
            settings.federation,
            settings.device,
            held=self._store.digests(),
            masks=SecureParticipation(only_masked=settings.only_masked),
        )
        self._rollout = LazyRollout(settings, data, self.inbox, partial(self._publish, Channel.UP_ROLLOUT))
        self._watchdog = watchdog_of(os.environ)
        self._freed = GivingBack()
        self._next_tick = 0.0
        self._warm_up_at = math.inf
        self._outcome: str | None = None
        self._reaching = Reaching(settings.address, settings.keep_trying)
        self._audience = ServerContact()
        self._rivalled = 0
        self.refused = 0

    def run(self) -> str | None:
        """Take part until stopped; returns the outcome of the run where that ended it, else None."""
        log.info("connecting to %s as %s", self._settings.address, self._settings.device)
        self._link.open()
        self._watchdog.ready()
        try:
            while not self._turn():
                pass
        finally:
            self._watchdog.stopping()
            self._carrier.stop()
            self._rollout.stop()
            self._worker.stop(wait_s=2.0)
            self._belongings.close()
            self._say_goodbye()
        return self._outcome

    def stop(self) -> None:
        """End soon; may be called from a signal handler or another thread."""
        self.inbox.put(Stop())

    def _turn(self) -> bool:
        """Handle one event, and the clock; returns whether to end."""
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._step(Tick())
            self._rollout.tick(training=self._session.phase is SessionPhase.WORKING)
            self._watchdog.alive(now)
            self._warm_up(now)
            self._freed.turn(now, busy=self._session.phase is not SessionPhase.IDLE)
            self._look_at_the_board(now)
            self._look_for_a_server(now)
            self._say_where(self._telemetry.turn(self._session, now))
        if self._keeper is not None:
            idle = self._session.phase is SessionPhase.IDLE
            self._keeper.turn(self._link, time.time(), connected=self._session.connected, idle=idle)
        try:
            event = self.inbox.get(timeout=max(0.0, self._next_tick - now))
        except queue.Empty:
            return False
        if isinstance(event, Stop):
            return True
        try:
            self._handle(event)
        except PeerError as error:
            self.refused += 1
            log.warning("ignored (%s): %s", error.reason, error, extra={"reason": error.reason})
        return self._outcome is not None and self._settings.once

    def _say_where(self, telemetry: Telemetry | None) -> None:
        if telemetry is not None:
            self._publish(Channel.UP, telemetry, qos=0)

    def _warm_up(self, now: float) -> None:
        if now >= self._warm_up_at:
            self._warm_up_at = math.inf
            self._worker.warm_up()

    def _look_at_the_board(self, now: float) -> None:
        """Hold the device to what its owner lets it do."""
        task = self._session.task
        at_work = task is not None and task.action == "train" and self._session.result is None
        for command in self._watch.turn(now, at_work=at_work):
            match command:
                case Hold():
                    self._worker.hold()
                case Resume():
                    self._worker.go_on()
                case GiveBack(detail):
                    log.warning("the task is given back: %s", detail)
                    self._step(GivenBack(detail))
                case ReportVerdict(verdict):
                    log.warning("%s%s", verdict.eligibility, f": {verdict.detail}" if verdict.detail else "")
                    if self._session.connected:
                        self._publish(Channel.BIRTH, self._presence.standing(verdict), retain=True)

    def _look_for_a_server(self, now: float) -> None:
        """Ask for an answer where none has come, and say so where none comes."""
        self._audience, commands = server_contact.turn(self._audience, now)
        for command in commands:
            match command:
                case server_contact.Ask():
                    self._publish(Channel.UP, self._presence.question())
                case server_contact.SayBirth() if self._session.connected:
                    birth = self._presence.standing(self._watch.standing.verdict)
                    self._publish(Channel.BIRTH, birth, retain=True)
                case server_contact.NobodyAnswers(seconds):
                    log.warning(NOBODY, seconds, self._settings.federation, self._settings.address)

    def _handle(self, event: Any) -> None:
        match event:
            case LinkUp() | LinkDown():
                self._link_changed(event)
            case Arrived(topic, payload, retained):
                if not retained:
                    self._audience = server_contact.heard(self._audience)
                self._arrived(topic, payload)
            case Progress():
                self._progressed(event)
            case ComparisonEnded():
                self._rollout.ran(event)
            case DataChanged(data):
                self._take_data(data)
            case WorkDone() | WorkFailed() | UpdateMasked() | FetchEnded() | PutEnded():
                self._step(event)
            case _:
                self._link.handle(event)

    def _take_data(self, data: LocalData) -> None:
        """Work with the data as it is now, and say how much of it there is."""
        self._place = replace(self._place, data=data)
        self._presence.renew(data.train)
        self._rollout.renew(data)
        if self._session.connected:
            birth = self._presence.standing(self._watch.standing.verdict)
            self._publish(Channel.BIRTH, birth, retain=True)

    def _say_few(self, task: Task) -> None:
        """Warn once of data that is less than a batch."""
        few = self._place.data.fewer_than_a_batch(task)
        if few and not self._said_few:
            self._said_few = True
            log.warning("%s", few)

    # --- the link ---
    def _link_changed(self, event: LinkEvent) -> None:
        self._link.handle(event)
        if isinstance(event, LinkUp):
            log.info("connected")
            self._reaching = self._reaching.succeeded()
            self._audience = server_contact.connected(time.monotonic())
            self._fit(self._reaching.chunk_bytes(event.max_packet))
            birth = self._presence.connected(event.session, self._watch.standing.verdict)
            self._publish(Channel.BIRTH, birth, retain=True)
            self._telemetry.connected(time.monotonic())
            if self._keeper is not None:
                self._keeper.connected()
            self._step(Connected())
            self._recall()
            self._rollout.connected()
            self._warm_up_at = time.monotonic() + WARM_UP_AFTER_S
        elif isinstance(event, LinkDown):
            self._audience = ServerContact()
            if not event.downgrade:
                self._reaching, said = self._reaching.failed(event)
                log.warning("%s", said)
            self._step(Disconnected())
            self._rollout.disconnected()

    def _fit(self, chunk_bytes: int) -> None:
        """Chunks and messages are to be no larger than this, nor than ever before."""
        if chunk_bytes >= self._place.chunk_bytes:
            return
        log.info("blobs travel in chunks of %d kB", chunk_bytes // 1024)
        self._place = replace(self._place, chunk_bytes=chunk_bytes)
        self._link.fit(chunk_bytes)
        self._session = results.rechunked(self._session, chunk_bytes)

    def _recall(self) -> None:
        """Go on where an earlier process was: now that the server can be heard, and only once."""
        earlier, self._earlier = self._earlier, None
        if earlier is not None:
            self._step(SessionRestored(earlier, self._present(earlier.task)))

    def _say_goodbye(self) -> None:
        """A clean disconnect sends no last will, so say it oneself, unless the name is another's."""
        if self._session.connected and self._rivalled < MOST_RIVALRIES:
            self._publish(Channel.BIRTH, self._presence.death(), retain=True)
        self._link.close()

    def _topic(self, channel: Channel) -> str:
        return str(DeviceTopic(self._settings.federation, self._settings.device, channel))

    def _layer_topic(self, number: int) -> str:
        return str(SharedTopic(self._settings.federation, number))

    def _publish(self, channel: Channel, message: Message, *, retain: bool = False, qos: int = 1) -> None:
        self._link.publish(self._topic(channel), encode_message(message), retain=retain, qos=qos)

    # --- what comes in ---
    def _arrived(self, topic: str, payload: bytes) -> None:
        match parse_topic(topic):
            case DeviceTopic(channel=Channel.DOWN_BLOB):
                chunk = decode_chunk(payload)
                if not self._rollout.takes(chunk):
                    self._step(ChunkArrived(chunk))
            case DeviceTopic(channel=Channel.DOWN_ROLLOUT):
                self._rollout.hear(payload)
            case SharedTopic():
                self._step(ChunkArrived(decode_chunk(payload), shared=True))
            case DeviceTopic(channel=Channel.DOWN) | StateTopic():
                if payload:
                    self._received(self._decode(payload))
            case EnrolTopic() if self._keeper is not None:
                self._keeper.take(self._decode(payload))
            case _:
                raise PeerError(f"nothing is expected on {topic}")

    def _present(self, message: AnyMessage | None) -> dict[str, int]:
        """What an earlier process, or an earlier task, left half fetched of the blobs of a new task."""
        if not isinstance(message, Task) or self._session.is_at(message.run, message.attempt):
            return {}
        return {ref.digest: self._store.present(ref) for ref in message.blobs.values()}

    def _decode(self, payload: bytes) -> AnyMessage:
        """Decode a message, and tell the server if it is none."""
        try:
            return decode_message(payload, federation=self._settings.federation)
        except PeerError as error:
            refusal = Refusal(
                federation=self._settings.federation,
                device=self._settings.device,
                reason=Reason(error.reason),
                detail=str(error)[:500],
            )
            self._publish(Channel.UP, refusal)
            raise

    def _received(self, message: AnyMessage) -> None:
        """Hear a message, or that a task is not to be trusted or nothing for this device's data."""
        try:
            self._signed.check(message)
            if isinstance(message, Task) and message.blobs:
                # The server has tried what its broker passes on, which is this device's too.
                self._fit(min(ref.chunk_bytes for ref in message.blobs.values()))
            if isinstance(message, Task):
                self._place.data.check(message)
        except PeerError as error:
            if isinstance(message, Task):
                self._step(Declined(message, Reason(error.reason), str(error)))
            raise
        if isinstance(message, Refusal) and message.attempt is None and message.reason not in TOLD_OTHERWISE:
            about_it = {"reason": message.reason}
            log.warning("the server refuses (%s): %s", message.reason, message.detail, extra=about_it)
        if isinstance(message, Refusal) and message.run is None:
            self._turned_away(message)
        if isinstance(message, Task) and self._may_not(message):
            self._step(Declined(message, Reason.INELIGIBLE, self._watch.standing.verdict.detail))
        else:
            self._step(Received(message, self._present(message)))

    def _turned_away(self, refusal: Refusal) -> None:
        """The server does not take the device as it is: its birth is said again, or the name is another's."""
        if refusal.reason in (Reason.TOO_MANY_REQUESTS, Reason.NOT_SELECTED):
            now, chance = time.monotonic(), random.random()
            self._audience = server_contact.turned_away(self._audience, now, chance)
        if refusal.reason is Reason.SAME_NAME and refusal.instance == self._presence.instance:
            self._rivalled += 1
            log.error("another device is called %s: %s", self._settings.device, refusal.detail)
            if self._rivalled >= MOST_RIVALRIES:
                raise same_name(self._settings.device, refusal.detail)

    def _may_not(self, task: Task) -> bool:
        """Whether the device's owner is against beginning this task now."""
        known = self._session.is_at(task.run, task.attempt)
        return task.action == "train" and not known and not self._watch.standing.may_train

    def _progressed(self, event: Progress) -> None:
        task = self._session.task
        if self._session.phase is not SessionPhase.WORKING or task is None or task != event.task:
            return
        log.info("round %d: epoch %d of %d, loss %s", task.round, event.epoch, event.epochs, event.loss)
        self._say_where(self._telemetry.progressed(event, time.monotonic()))

    # --- what the session decides ---
    def _step(self, event: Event) -> None:
        before = self._session
        self._session, commands = machine.step(before, event, time.monotonic())
        if self._session.task is not before.task or self._session.awaited != before.awaited:
            # Before the reply to a task, which says that these topics are heard.
            self._link.listen(frozenset(self._layer_topic(n) for n in self._session.listens))
        for command in commands:
            self._do(command)
        self._remember()

    def _remember(self) -> None:
        """After the commands: what was settled must be put down before its task is forgotten."""
        # Before the link is up the session does not know yet what an earlier process was at.
        if self._earlier is None:
            self._belongings.remember(self._session)

    def _do(self, command: Command) -> None:
        match command:
            case SendMessage(message):
                self._publish(Channel.UP, message)
            case SendChunks():
                self._send_chunks(command)
            case WriteChunk():
                self._keep_chunk(command)
            case VerifyBlob(ref):
                if self._session.has_all_of(ref):
                    self._step(keep_blob(self._store, ref))
            case StartWork(task):
                about(run=task.run, round=task.round)
                log.info("round %d: %s at tier %d", task.round, task.action, task.tier)
                self._say_few(task)
                self._say_where(self._telemetry.begun(task, time.monotonic()))
                self._worker.start(task, self._place)
            case DrawEntropy(task):
                self._step(EntropyDrawn(task, os.urandom(ENTROPY_BYTES)))
            case MaskUpdate(update, membership):
                self._worker.mask(update, membership, self._place)
            case Fetch() | Put() | StopTransfers():
                self._carrier.do(command)
            case StopWork():
                log.info("the task is no longer wanted")
                self._worker.stop()
            case Settled():
                self._settled(command)
            case RunEnded(end):
                self._run_ended(end)

    def _send_chunks(self, command: SendChunks) -> None:
        ref = command.ref
        for index in range(command.first, min(command.first + command.count, ref.chunks)):
            self._link.send_chunk(
                (ref.digest, index), self._topic(Channel.UP_BLOB), partial(self._store.read_frame, ref, index)
            )

    def _settled(self, settled: Settled) -> None:
        result = settled.result
        if settled.refusal is not None:
            refusal = settled.refusal
            about_it = {"round": result.round, "reason": refusal.reason}
            log.warning("round %d: refused (%s) %s", *about_it.values(), refusal.detail, extra=about_it)
        else:
            log.info("round %d: %s accepted", result.round, result.kind)
        self._session = self._belongings.settle(settled, self._session)

    def _keep_chunk(self, command: WriteChunk) -> None:
        lost = keep_chunk(self._store, command)
        if lost is not None:
            self._session = self._belongings.make_room(self._session)
            self._step(lost)

    def _run_ended(self, end: FederationEnd) -> None:
        log.info("run %s has %s", end.run, end.outcome)
        self._outcome = end.outcome


def _keeper(settings: AgentSettings) -> Keeper | None:
    """Who renews the certificate; a device without one needs no `cryptography`."""
    if settings.address.tls is None or settings.address.tls.certificate is None:
        return None
    from edge_client.security.identity.certificate_renewer import keeper_of

    return keeper_of(settings.address.tls, federation=settings.federation, device=settings.device)
