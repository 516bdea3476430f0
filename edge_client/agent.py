"""The device's edge to the outside world: it carries out what the session's state machine decides.

One thread owns everything here; paho and the worker only put events in its inbox.
"""

from __future__ import annotations

import logging
import math
import os
import queue
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client import session as machine
from edge_client.address import BrokerAddress
from edge_client.blobstore import BlobStore
from edge_client.depot.bypass import Fetch, FetchEnded, Put, PutEnded, StopTransfers
from edge_client.depot.carrier import Carrier
from edge_client.depot.web import web_of
from edge_client.disk import forget_others, keep_blob, keep_chunk, note_session, settle
from edge_client.epochs import INTERVAL_S, EpochCheckpoints
from edge_client.files import sweep
from edge_client.identity.renewal import Due
from edge_client.link import Arrived, Inbox, Link, LinkDown, LinkEvent, LinkUp
from edge_client.memory import Memory, blobs_of
from edge_client.memory_file import MemoryFile
from edge_client.private import PrivateState
from edge_client.secure.keys import ENTROPY_BYTES
from edge_client.secure.partaking import Partaking
from edge_client.session import Phase, Session
from edge_client.session_events import (
    ChunkArrived,
    Command,
    Connected,
    Disconnected,
    Distrusted,
    DrawEntropy,
    EntropyDrawn,
    Event,
    MaskUpdate,
    Received,
    Remembered,
    RunEnded,
    Send,
    SendChunks,
    Settled,
    StartWork,
    StopWork,
    Tick,
    UpdateMasked,
    WorkDone,
    WorkFailed,
)
from edge_client.signed_only import SignedOnly
from edge_client.transfer import VerifyBlob, WriteChunk
from edge_client.trust import TrustedKey
from edge_client.worker import Progress, Worker
from edge_client.workplace import LocalData, Workplace
from schemas.blobs import SMALL_CHUNK_BYTES, decode_chunk
from schemas.errors import PeerError
from schemas.messages import (
    AnyMessage,
    Birth,
    Death,
    FederationEnd,
    Message,
    Refusal,
    Task,
    Telemetry,
    decode_message,
    encode_message,
)
from schemas.topics import (
    Channel,
    DeviceTopic,
    EnrolTopic,
    LayerTopic,
    StateTopic,
    device_filters,
    parse_topic,
)
from schemas.values import CapabilityProfile, DataCard, Reason

if TYPE_CHECKING:
    from edge_client.identity.keeper import Keeper

log = logging.getLogger(__name__)

TICK_S = 0.25
TELEMETRY_S = 1.0
WARM_UP_AFTER_S = 3.0
"""After connecting: where a whole federation starts on one machine, torch is not imported in its way."""
PACKET_SLACK = 1024


@dataclass(frozen=True)
class Stop:
    """Event: the user asked for an end."""


@dataclass(frozen=True)
class AgentSettings:
    """Who this device is and how it takes part; `once`: end with the first run that it took part in.

    `checkpoint_s` is the shortest time between two checkpoints of a training.
    `only_masked`: no update leaves this device that the server could read by itself.
    """

    federation: str
    device: str
    address: BrokerAddress
    state: Path
    source: str
    profile: CapabilityProfile
    once: bool = False
    threads: int | None = None
    model_code: frozenset[str] = frozenset()
    trust: TrustedKey | None = None
    checkpoint_s: float = INTERVAL_S
    only_masked: bool = False


class Agent:
    """Runs one device until it is stopped."""

    def __init__(self, settings: AgentSettings, data: LocalData) -> None:
        self._settings, self._data = settings, data
        self.inbox: Inbox = queue.SimpleQueue()
        sweep(settings.state)
        self._memory = MemoryFile(settings.state / "task.json")
        self._checkpoints = EpochCheckpoints(settings.state / "epochs", interval_s=settings.checkpoint_s)
        self._store = BlobStore(settings.state / "blobs")
        self._private = PrivateState(settings.state / "private")
        self._place = Workplace(
            settings.device,
            self._store,
            data,
            settings.state / "models",
            model_code=settings.model_code,
            private=self._private,
            signed_only=settings.trust is not None,
            checkpoints=self._checkpoints,
        )
        self._signed = SignedOnly(settings.federation, settings.device, settings.state, settings.trust)
        self._earlier: Memory | None = self._wake()
        self._worker = Worker(self.inbox, threads=settings.threads)
        self._carrier = Carrier(self.inbox, self._store, web_of(settings.address.tls))
        self._sessions = settings.state / "session"
        self._keeper = _keeper(settings)
        kept = self._keeper.filters if self._keeper else ()
        self._link = Link(
            settings.address,
            self.inbox,
            client_id=f"{settings.federation}-{settings.device}",
            filters=(*device_filters(settings.federation, settings.device), *kept),
            will=self._will,
            first_session=self._next_session(),
        )
        self._number = 0
        self._session = Session(
            settings.federation,
            settings.device,
            held=self._store.digests(),
            masks=Partaking(only_masked=settings.only_masked),
        )
        self._next_tick = self._next_telemetry = 0.0
        self._warm_up_at = math.inf
        self._outcome: str | None = None
        self.refused = 0

    def run(self) -> str | None:
        """Take part until stopped; returns the outcome of the run where that ended it, else None."""
        log.info("connecting to %s as %s", self._settings.address, self._settings.device)
        self._link.open()
        try:
            while not self._turn():
                pass
        finally:
            self._carrier.stop()
            self._worker.stop(wait_s=2.0)
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
            self._warm_up(now)
        self._keep_certificate()
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
            log.warning("ignored (%s): %s", error.reason, error)
        return self._outcome is not None and self._settings.once

    def _warm_up(self, now: float) -> None:
        if now >= self._warm_up_at:
            self._warm_up_at = math.inf
            self._worker.warm_up()

    def _handle(self, event: Any) -> None:
        match event:
            case LinkUp() | LinkDown():
                self._link_changed(event)
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case Progress():
                self._progressed(event)
            case WorkDone() | WorkFailed() | UpdateMasked() | FetchEnded() | PutEnded():
                self._step(event)
            case _:
                self._link.handle(event)

    # --- the link ---
    def _link_changed(self, event: LinkEvent) -> None:
        self._link.handle(event)
        if isinstance(event, LinkUp):
            log.info("connected")
            if event.max_packet is not None and event.max_packet < self._place.chunk_bytes + PACKET_SLACK:
                self._place = replace(self._place, chunk_bytes=SMALL_CHUNK_BYTES)
            self._number = event.session
            note_session(self._sessions, event.session)
            self._publish(Channel.BIRTH, self._birth(), retain=True)
            if self._keeper is not None:
                self._keeper.connected()
            self._step(Connected())
            self._recall()
            self._warm_up_at = time.monotonic() + WARM_UP_AFTER_S
        elif isinstance(event, LinkDown):
            log.warning("no connection to %s: %s; trying again", self._settings.address, event.reason)
            self._step(Disconnected())

    def _wake(self) -> Memory:
        """What an earlier process was at; what is left of older tasks goes, finished blobs stay."""
        memory = self._memory.load(self._settings.federation, self._settings.device)
        self._store.drop_parts(memory.blobs())
        self._checkpoints.keep_only(memory.task)
        return memory

    def _recall(self) -> None:
        """Go on where an earlier process was: now that the server can be heard, and only once."""
        earlier, self._earlier = self._earlier, None
        if earlier is not None:
            self._step(Remembered(earlier, self._present(earlier.task)))

    def _keep_certificate(self) -> None:
        """Ask for the next certificate in time; begin to use it when nothing is under way."""
        if self._keeper is None:
            return
        idle, now = self._session.phase is Phase.IDLE, time.time()
        try:
            match self._keeper.due(now, connected=self._session.connected, idle=idle):
                case Due.ASK:
                    self._link.publish(self._keeper.topic, encode_message(self._keeper.request(now)))
                case Due.RECONNECT:
                    log.info("connecting again, with the new certificate")
                    self._keeper.connected()
                    self._link.reconnect()
                case Due.NOTHING:
                    pass
        except OSError as error:
            log.warning("the next certificate's key cannot be kept: %s", error)

    def _next_session(self) -> int:
        """Higher than any session of this device before, also where the clock was set back."""
        try:
            last = int(self._sessions.read_text())
        except (OSError, ValueError):
            last = 0
        return max(last + 1, int(time.time() * 1000))

    def _will(self, session: int) -> tuple[str, bytes]:
        return self._topic(Channel.BIRTH), encode_message(self._death(session))

    def _birth(self) -> Birth:
        train = self._data.train
        card = DataCard(
            source=self._settings.source,
            examples=len(train),
            input_shape=train.input_shape,
            num_classes=train.num_classes,
        )
        return Birth(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self._number,
            profile=self._settings.profile,
            data=card,
        )

    def _death(self, session: int) -> Death:
        return Death(federation=self._settings.federation, device=self._settings.device, session=session)

    def _say_goodbye(self) -> None:
        """A clean disconnect sends no last will, so say it oneself."""
        if self._session.connected:
            self._publish(Channel.BIRTH, self._death(self._number), retain=True)
        self._link.close()

    def _topic(self, channel: Channel) -> str:
        return str(DeviceTopic(self._settings.federation, self._settings.device, channel))

    def _layer_topic(self, number: int) -> str:
        return str(LayerTopic(self._settings.federation, number))

    def _publish(self, channel: Channel, message: Message, *, retain: bool = False, qos: int = 1) -> None:
        self._link.publish(self._topic(channel), encode_message(message), retain=retain, qos=qos)

    # --- what comes in ---
    def _arrived(self, topic: str, payload: bytes) -> None:
        match parse_topic(topic):
            case DeviceTopic(channel=Channel.DOWN_BLOB):
                self._step(ChunkArrived(decode_chunk(payload)))
            case LayerTopic():
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
        task = self._session.task
        if not isinstance(message, Task) or (
            task and (task.run, task.attempt) == (message.run, message.attempt)
        ):
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
        """Hear a message, or that a task is not to be trusted."""
        try:
            self._signed.check(message)
        except PeerError as error:
            if isinstance(message, Task):
                self._step(Distrusted(message, Reason(error.reason), str(error)))
            raise
        self._step(Received(message, self._present(message)))

    def _progressed(self, event: Progress) -> None:
        task = self._session.task
        if self._session.phase is not Phase.WORKING or task is None or task != event.task:
            return
        log.info("round %d: epoch %d of %d, loss %s", task.round, event.epoch, event.epochs, event.loss)
        now = time.monotonic()
        if now >= self._next_telemetry:
            self._next_telemetry = now + TELEMETRY_S
            self._tell("training", task.round, epoch=event.epoch, epochs=event.epochs, loss=event.loss)

    def _tell(self, phase: Any, number: int, **details: Any) -> None:
        telemetry = Telemetry(
            federation=self._settings.federation,
            device=self._settings.device,
            session=self._number,
            phase=phase,
            round=number,
            **details,
        )
        self._publish(Channel.UP, telemetry, qos=0)

    # --- what the session decides ---
    def _step(self, event: Event) -> None:
        self._session, commands = machine.step(self._session, event, time.monotonic())
        # Before the reply to a task, which says that these topics are heard.
        self._link.listen(frozenset(self._layer_topic(n) for n in self._session.listens))
        for command in commands:
            self._do(command)
        self._remember()

    def _remember(self) -> None:
        """After the commands: what was settled must be put down before its task is forgotten."""
        # Before the link is up the session does not know yet what an earlier process was at.
        if self._earlier is None and self._memory.save(self._session.memory):
            task, result = self._session.task, self._session.result
            self._checkpoints.keep_only(task if result is None else None)

    def _do(self, command: Command) -> None:
        match command:
            case Send(message):
                self._publish(Channel.UP, message)
            case SendChunks():
                self._send_chunks(command)
            case WriteChunk():
                self._keep_chunk(command)
            case VerifyBlob(ref):
                if self._session.has_all_of(ref):
                    self._step(keep_blob(self._store, ref))
            case StartWork(task):
                log.info("round %d: %s at tier %d", task.round, task.action, task.tier)
                self._tell("exporting" if task.action == "deliver" else "training", task.round)
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
            log.warning(
                "round %d: refused (%s) %s", result.round, settled.refusal.reason, settled.refusal.detail
            )
        else:
            log.info("round %d: %s accepted", result.round, result.kind)
        settle(self._private, settled)
        # An answer may come late, and a worker's own files must not be taken from under it.
        if self._session.phase is not Phase.WORKING:
            self._make_room()

    def _keep_chunk(self, command: WriteChunk) -> None:
        lost = keep_chunk(self._store, command)
        if lost is not None:
            self._make_room()
            self._step(lost)

    def _make_room(self) -> None:
        """Forget the blobs that nobody is going to ask for."""
        forget_others(self._store, self._needed())
        self._session = replace(self._session, held=self._store.digests())

    def _needed(self) -> frozenset[str]:
        """Blobs that may be asked for again: those of the task at hand and of its result."""
        result = self._session.result or self._session.masks.trained
        return frozenset(ref.digest for ref in blobs_of(self._session.task, result))

    def _run_ended(self, end: FederationEnd) -> None:
        log.info("run %s has %s", end.run, end.outcome)
        self._outcome = end.outcome


def _keeper(settings: AgentSettings) -> Keeper | None:
    """Who renews the certificate; a device without one needs no `cryptography`."""
    if settings.address.tls is None or settings.address.tls.certificate is None:
        return None
    from edge_client.identity.keeper import keeper_of

    return keeper_of(settings.address.tls, federation=settings.federation, device=settings.device)
