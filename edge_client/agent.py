"""The device's edge to the outside world: it carries out what the session's state machine decides.

One thread owns everything here; paho and the worker only put events in its inbox.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from edge_client import session as machine
from edge_client.address import BrokerAddress
from edge_client.blobstore import BlobStore
from edge_client.link import Arrived, Inbox, Link, LinkDown, LinkEvent, LinkUp
from edge_client.private import PrivateState
from edge_client.secure.keys import ENTROPY_BYTES
from edge_client.secure.partaking import Partaking
from edge_client.session import Phase, Session
from edge_client.session_events import (
    BlobChecked,
    ChunkArrived,
    Command,
    Connected,
    Disconnected,
    DrawEntropy,
    EntropyDrawn,
    Event,
    MaskUpdate,
    Received,
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
from edge_client.transfer import VerifyBlob, WriteChunk
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
    Telemetry,
    Update,
    decode_message,
    encode_message,
)
from schemas.topics import Channel, DeviceTopic, StateTopic, device_filters, parse_topic
from schemas.values import CapabilityProfile, DataCard, Reason

log = logging.getLogger(__name__)

TICK_S = 0.25
TELEMETRY_S = 1.0
PACKET_SLACK = 1024


@dataclass(frozen=True)
class Stop:
    """Event: the user asked for an end."""


@dataclass(frozen=True)
class AgentSettings:
    """Who this device is and how it takes part; `once`: end with the first run that it took part in.

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
    only_masked: bool = False


class Agent:
    """Runs one device until it is stopped."""

    def __init__(self, settings: AgentSettings, data: LocalData) -> None:
        self._settings, self._data = settings, data
        self.inbox: Inbox = queue.SimpleQueue()
        self._store = BlobStore(settings.state / "blobs")
        self._private = PrivateState(settings.state / "private")
        self._place = Workplace(
            settings.device,
            self._store,
            data,
            settings.state / "models",
            model_code=settings.model_code,
            private=self._private,
        )
        self._worker = Worker(self.inbox, threads=settings.threads)
        self._sessions = settings.state / "session"
        self._link = Link(
            settings.address,
            self.inbox,
            client_id=f"{settings.federation}-{settings.device}",
            filters=device_filters(settings.federation, settings.device),
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

    def _handle(self, event: Any) -> None:
        match event:
            case LinkUp() | LinkDown():
                self._link_changed(event)
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case Progress():
                self._progressed(event)
            case WorkDone() | WorkFailed() | UpdateMasked():
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
            self._sessions.write_text(str(event.session))
            self._publish(Channel.BIRTH, self._birth(), retain=True)
            self._step(Connected())
            self._worker.warm_up()
        elif isinstance(event, LinkDown):
            log.warning("no connection to %s: %s; trying again", self._settings.address, event.reason)
            self._step(Disconnected())

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

    def _publish(self, channel: Channel, message: Message, *, retain: bool = False, qos: int = 1) -> None:
        self._link.publish(self._topic(channel), encode_message(message), retain=retain, qos=qos)

    # --- what comes in ---
    def _arrived(self, topic: str, payload: bytes) -> None:
        match parse_topic(topic):
            case DeviceTopic(channel=Channel.DOWN_BLOB):
                self._step(ChunkArrived(decode_chunk(payload)))
            case DeviceTopic(channel=Channel.DOWN) | StateTopic():
                if payload:
                    self._step(Received(self._decode(payload)))
            case _:
                raise PeerError(f"nothing is expected on {topic}")

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
        for command in commands:
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case Send(message):
                self._publish(Channel.UP, message)
            case SendChunks():
                self._send_chunks(command)
            case WriteChunk(ref, index, data):
                self._store.write_chunk(ref, index, data)
            case VerifyBlob(ref):
                self._step(BlobChecked(ref.digest, self._store.verify(ref)))
            case StartWork(task):
                log.info("round %d: %s at tier %d", task.round, task.action, task.tier)
                self._tell("exporting" if task.action == "deliver" else "training", task.round)
                self._worker.start(task, self._place)
            case DrawEntropy(task):
                self._step(EntropyDrawn(task, os.urandom(ENTROPY_BYTES)))
            case MaskUpdate(update, membership):
                self._worker.mask(update, membership, self._place)
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
        if isinstance(result, Update):
            settle = self._private.commit if settled.refusal is None else self._private.discard
            settle(result.run, result.round, result.attempt)
        self._store.keep_only(self._needed())
        self._session = replace(self._session, held=self._store.digests())

    def _needed(self) -> frozenset[str]:
        """Blobs that may be asked for again: those of the task at hand and of its result."""
        task, result = self._session.task, self._session.result
        digests = {ref.digest for ref in task.blobs.values()} if task else set()
        return frozenset(digests | ({result.blob.digest} if isinstance(result, Update) else set()))

    def _run_ended(self, end: FederationEnd) -> None:
        log.info("run %s has %s", end.run, end.outcome)
        self._outcome = end.outcome
