"""A virtual device's edge to its outside world: it carries out what its session decides, in virtual time."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edge_client.agent.session import machine
from edge_client.agent.session.events import (
    BlobChecked,
    BlobsDiscarded,
    Command,
    Connected,
    Disconnected,
    DrawEntropy,
    EntropyDrawn,
    Event,
    MaskUpdate,
    Received,
    Result,
    SendChunks,
    SendMessage,
    Settled,
    StartWork,
    UpdateMasked,
    WorkDone,
    WorkFailed,
)
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.security.secure_aggregation.mask_update import mask_update
from edge_client.storage.blob_store import BlobStore
from edge_server.observability.counters import RunCounters
from edge_server.simulation.client_work import private_state
from edge_server.simulation.durations import Pace
from edge_server.simulation.engine import Engine, Job, Outcome
from edge_server.simulation.events import Downloaded, Happening, ReachesServer, Uploaded, WorkEnds
from edge_server.simulation.population import VirtualDevice
from edge_server.simulation.timeline import Timeline
from edge_server.simulation.transfers import Transits, later_request_bytes, transfer_bytes
from schemas.errors import PeerError
from schemas.messages import (
    AnyMessage,
    Birth,
    Death,
    Delivery,
    FromDevice,
    Message,
    Task,
    TrainTask,
    Update,
    decode_message,
    encode_message,
)
from schemas.submodel import SubModelSpec
from schemas.tensors.blobs import BlobRef
from schemas.values import CapabilityProfile, DataCard, Reason


@dataclass(frozen=True)
class Surroundings:
    """What all virtual devices share; `macs` are those of a sub-model for one example."""

    federation: str
    timeline: Timeline[Happening]
    engine: Engine[Any]
    store: BlobStore
    clients: Path
    tally: RunCounters
    macs: Callable[[SubModelSpec], int]


class Presence(Protocol):
    """When a device is there: a pure function of virtual time."""

    def online(self, t: float) -> bool:
        """Whether it is there at `t` seconds."""
        ...

    def next_change(self, t: float) -> float:
        """When that changes next, later than `t`; infinity if never."""
        ...


@dataclass(frozen=True, slots=True)
class Standing:
    """What of a device outlives a round: its connections so far, when it was lost, the blobs it holds."""

    number: int = 0
    lost_at: float | None = 0.0
    held: frozenset[str] = frozenset()


class DeviceEdge:
    """One device: its session, its link, its work under way."""

    def __init__(
        self,
        device: VirtualDevice,
        pace: Pace,
        around: Surroundings,
        *,
        profile: CapabilityProfile,
        data: DataCard,
        presence: Presence | None = None,
    ) -> None:
        self.device, self._pace, self._around = device, pace, around
        self.profile, self.data, self._presence = profile, data, presence
        self._number, self._lost_at = 0, 0.0
        self._session = Session(around.federation, device.name)
        self._downloads, self._uploads = Transits(), Transits()
        self._job: Any = None
        self._attempt = 0
        self._work_s = 0.0

    # --- between rounds ---
    @property
    def online(self) -> bool:
        """Whether its link is up."""
        return self._session.connected

    @property
    def busy(self) -> bool:
        """Whether the engine has its job."""
        return self._job is not None

    def standing(self) -> Standing:
        """What a round that closes leaves of the device."""
        return Standing(self._number, None if self.online else self._lost_at, self._session.held)

    def stand(self, standing: Standing) -> None:
        """Go on from there: whatever else was under way belonged to the round that has closed."""
        self._drop_job()
        online = standing.lost_at is None
        self._number, self._lost_at = standing.number, standing.lost_at or 0.0
        self._session = Session(
            self._around.federation, self.device.name, held=standing.held, connected=online
        )
        self._downloads, self._uploads = Transits(), Transits()

    # --- the link ---
    @property
    def latency_s(self) -> float:
        """How long a message is on its way."""
        return self._pace.latency_s

    def next_turn(self) -> float:
        """When the link next goes up or down; infinity if never."""
        return math.inf if self._presence is None else self._presence.next_change(self._around.timeline.now)

    def is_there(self) -> bool:
        """Whether its link should be up now; without a presence it always is."""
        return self._presence is None or self._presence.online(self._around.timeline.now)

    def turn_link(self) -> None:
        """Let the link be as it should."""
        there = self.is_there()
        if there and not self.online:
            self.connect()
        elif self.online and not there:
            self.cut()

    def connect(self) -> None:
        """The link is up: a birth, then whatever the session repeats."""
        self._number += 1
        birth = Birth(
            federation=self._around.federation,
            device=self.device.name,
            session=self._number,
            profile=self.profile,
            data=self.data,
        )
        self._send(birth)
        self.step(Connected())

    def cut(self) -> None:
        """The link is down: the broker publishes the last will."""
        self.step(Disconnected())
        now = self._around.timeline.now
        self._lost_at = now
        self._downloads.cut(now)
        self._uploads.cut(now)
        self._send(Death(federation=self._around.federation, device=self.device.name, session=self._number))

    def hears(self, message: AnyMessage) -> None:
        """A message of the server arrives; it is lost if the link is down."""
        if self.online:
            self.step(Received(message))

    def download(self, ref: BlobRef) -> None:
        """The server begins to send a blob."""
        if self.online:
            self._move(self._downloads, ref, self._pace.download_s(transfer_bytes(ref)), Downloaded)

    def sends(self, digest: str) -> bool:
        """Whether that blob is on its way to the server."""
        return digest in self._uploads

    def downloaded(self, digest: str, transit: int) -> None:
        """A transfer to the device is over: it counts, unless it was cut."""
        ref = self._downloads.finish(digest, transit)
        if ref is not None:
            self._around.tally.sent(self.device.name, transfer_bytes(ref))
            self._around.tally.received(self.device.name, self._later_requests(ref))
            self.step(BlobChecked(digest, sound=True))

    def uploaded(self, digest: str, transit: int) -> BlobRef | None:
        """A transfer from the device is over: it counts, unless it was cut or is no longer wanted."""
        ref = self._uploads.finish(digest, transit)
        if ref is not None:
            self._around.tally.received(self.device.name, transfer_bytes(ref))
            self._around.tally.sent(self.device.name, self._later_requests(ref))
        return ref

    def _later_requests(self, ref: BlobRef) -> int:
        return later_request_bytes(self._around.federation, self.device.name, ref)

    def _move(
        self, transits: Transits, ref: BlobRef, duration_s: float, ended: type[Downloaded] | type[Uploaded]
    ) -> None:
        timeline = self._around.timeline
        transit = transits.begin(ref, duration_s, timeline.now)
        if transit is not None and transit.ends_at is not None:
            over = ended(self.device.name, ref.digest, transit.number)
            timeline.post(transit.ends_at + self.latency_s, over)

    def _send(self, message: Message) -> None:
        assert isinstance(message, FromDevice)
        arrives = self._around.timeline.now + self.latency_s
        self._around.timeline.post(arrives, ReachesServer(message, len(encode_message(message))))

    # --- the work ---
    def awaited(self, attempt: int) -> Any:
        """The job whose outcome is due now; None if its task was dropped meanwhile."""
        working = self._session.phase is SessionPhase.WORKING and self._attempt == attempt
        return self._job if working else None

    def work_ends(self, outcome: Outcome) -> None:
        """The task is done, or cannot be done."""
        task = self._session.task
        assert task is not None
        self._job = None
        if outcome.answer is None:
            self.step(WorkFailed(task, outcome.reason, outcome.detail))
        else:
            self.step(WorkDone(self._in_virtual_time(outcome.answer)))

    def _in_virtual_time(self, answer: str) -> Result:
        """The answer as a device of this pace would have given it."""
        result = decode_message(answer.encode())
        assert isinstance(result, Update | Delivery)
        if isinstance(result, Delivery):
            return result
        metrics = result.metrics.model_copy(update={"seconds": self._work_s})
        return result.model_copy(update={"metrics": metrics})

    def _start(self, task: Task) -> None:
        timeline = self._around.timeline
        self._work_s = self._pace.work_s(task, self._around.macs(task.spec))
        timeline.post(timeline.now + self._work_s, WorkEnds(self.device.name, task.attempt))

    def _match_job(self) -> None:
        """Have the engine do what the session is about, as soon as it is known: workers need not wait."""
        task = self._session.task
        wanted = task is not None and self._session.phase in (SessionPhase.FETCHING, SessionPhase.WORKING)
        if self._job is not None and not (wanted and task is not None and task.attempt == self._attempt):
            self._drop_job()
        if wanted and task is not None and self._job is None and task.attempt != self._attempt:
            self._attempt = task.attempt
            self._job = self._around.engine.submit(Job(self.device.name, task.model_dump_json()))

    def _drop_job(self) -> None:
        if self._job is not None:
            self._around.engine.cancel(self._job)
            self._job = None

    # --- what the session decides ---
    def step(self, event: Event) -> None:
        """Apply an event to the session and do what it says."""
        before = self._session
        self._session, commands = machine.step(before, event, self._around.timeline.now)
        if self._session is before and not commands:
            return
        self._downloads.forget(before.receiving.keys() - self._session.receiving.keys())
        self._uploads.forget(_claimed(before) - _claimed(self._session))
        self._match_job()
        for command in commands:
            self._do(command)

    def _do(self, command: Command) -> None:
        match command:
            case SendMessage(message):
                if self.online:
                    self._send(message)
            case SendChunks(ref, _, _):
                if self.online:
                    self._move(self._uploads, ref, self._pace.upload_s(transfer_bytes(ref)), Uploaded)
            case StartWork(task):
                self._start(task)
            case Settled():
                self._settled(command)
            case DrawEntropy(task):
                self.step(EntropyDrawn(task, self._entropy(task)))
            case MaskUpdate(update, membership):
                self._mask(update, membership)
            case _:
                pass

    def _entropy(self, task: TrainTask) -> bytes:
        """A real device's is random; here it is the same whenever the run is repeated."""
        named = f"{task.training.seed}/{task.run}/{task.attempt}/{self.device.name}"
        return hashlib.sha256(named.encode()).digest()

    def _mask(self, update: Update, membership: Membership) -> None:
        """Masks take no time here; what training takes on such a board is far more."""
        try:
            self.step(UpdateMasked(mask_update(update, membership, self._around.store)))
        except PeerError as error:
            self.step(WorkFailed(membership.task, Reason(error.reason), str(error)))

    def _settled(self, settled: Settled) -> None:
        result = settled.result
        private = private_state(self._around.clients, self.device.name)
        if settled.refusal is None and isinstance(result, Update):
            private.commit(result.run, result.round, result.attempt)
        else:
            private.discard(result.run, result.round, result.attempt)
        self.step(BlobsDiscarded(self.needed()))

    def needed(self) -> frozenset[str]:
        """Blobs that may be asked for again, as a real device keeps them."""
        task = self._session.task
        digests = {ref.digest for ref in task.blobs.values()} if task else set()
        return _claimed(self._session) | digests


def _claimed(session: Session) -> frozenset[str]:
    """The blob of the session's result, if that has one."""
    return frozenset({session.result.blob.digest} if isinstance(session.result, Update) else ())


def lay_out(task: Task, source: BlobStore, target: BlobStore) -> None:
    """Let the workers find a task's blobs: by a link, however soon the server forgets them."""
    for ref in task.blobs.values():
        link(source, target, ref.digest)


def link(source: BlobStore, target: BlobStore, digest: str) -> None:
    """Put a blob into another store without copying it."""
    if digest not in target:
        os.link(source.path(digest), target.path(digest))
