"""A virtual device: it executes the commands of its session in virtual time."""

import hashlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from edge_client.agent.session import events, machine
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.security.secure_aggregation.mask_update import mask_update
from edge_client.storage.blob_store import BlobStore
from edge_server.observability.counters import RunCounters
from edge_server.simulation import client_work, clock, population
from edge_server.simulation.events import (
    Downloaded,
    MessageToServer,
    Timeline,
    TimelineEvent,
    Uploaded,
    WorkEnded,
)
from schemas import capabilities, errors, messages, values
from schemas.tensors.chunks import BlobRef


@dataclass(frozen=True)
class Surroundings:
    """What all virtual devices share.

    `work` counts a task's multiply-accumulates.
    """

    federation: str
    timeline: Timeline[TimelineEvent]
    engine: client_work.Engine[Any]
    store: BlobStore
    clients: Path
    tally: RunCounters
    work: Callable[[messages.Task], clock.Work]


class Presence(Protocol):
    """When a device is online: a pure function of virtual time."""

    def online(self, t: float) -> bool:
        """Whether the device is online at `t` seconds."""

    def next_change(self, t: float) -> float:
        """The time of the next change after `t`; infinity if there is none."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A device's state between rounds: its connections so far, when it was lost, its blobs' digests.

    `growth` is that of its data, if it grows.
    """

    number: int = 0
    lost_at: float | None = 0.0
    held: frozenset[str] = frozenset()
    growth: population.Growth | None = None


class DeviceEdge:
    """One virtual device: its session, its link, its job."""

    def __init__(
        self,
        device: population.VirtualDevice,
        pace: clock.Pace,
        around: Surroundings,
        *,
        profile: values.CapabilityProfile,
        data: values.DataCard,
        presence: Presence | None = None,
        growing: population.GrowingData | None = None,
    ) -> None:
        self.device, self._pace, self._around = device, pace, around
        self.profile, self.card, self._presence, self._growing = profile, data, presence, growing
        self._number, self._lost_at = 0, 0.0
        self._session = Session(around.federation, device.name)
        self._downloads, self._uploads = clock.Transits(), clock.Transits()
        self._job: Any = None
        self._attempt, self._has_features = 0, False
        self._work_s = 0.0

    # --- between rounds ---
    @property
    def online(self) -> bool:
        return self._session.connected

    @property
    def busy(self) -> bool:
        """Whether the engine runs a job of the device."""
        return self._job is not None

    def state(self) -> DeviceState:
        lost_at = None if self.online else self._lost_at
        growth = None if self._growing is None else self._growing.growth
        return DeviceState(self._number, lost_at, self._session.held, growth)

    def restore(self, state: DeviceState) -> None:
        """Continue from a state; job and transfers of the closed round are dropped."""
        self._drop_job()
        online = state.lost_at is None
        self._number, self._lost_at = state.number, state.lost_at or 0.0
        self._session = Session(self._around.federation, self.device.name, held=state.held, connected=online)
        self._downloads, self._uploads = clock.Transits(), clock.Transits()
        if self._growing is not None and state.growth is not None:
            self._growing.growth = state.growth

    # --- the data ---
    @property
    def data(self) -> values.DataCard:
        return self.card if self._growing is None else self._growing.card

    def next_arrival(self) -> float:
        """When the device next gets examples; infinity if never."""
        return math.inf if self._growing is None else self._growing.next_arrival()

    def take_arrivals(self) -> None:
        if self._growing is not None:
            self._growing.take(self._around.timeline.now)
            self._describe()

    def _describe(self) -> None:
        if self.online:
            self._send(self._birth())

    # --- the link ---
    @property
    def latency_s(self) -> float:
        return self._pace.board.latency_s

    def next_link_change(self) -> float:
        """When the device next goes online or offline; infinity if never."""
        return math.inf if self._presence is None else self._presence.next_change(self._around.timeline.now)

    def is_there(self) -> bool:
        """Whether the device should be online now; without a presence it always is."""
        return self._presence is None or self._presence.online(self._around.timeline.now)

    def update_link(self) -> None:
        there = self.is_there()
        if there and not self.online:
            self.connect()
        elif self.online and not there:
            self.cut()

    def connect(self) -> None:
        """Publish a birth, then what the session repeats."""
        self._number += 1
        self._send(self._birth())
        self.step(events.Connected())

    def _birth(self) -> messages.Birth:
        return messages.Birth(
            federation=self._around.federation,
            device=self.device.name,
            session=self._number,
            profile=self.profile,
            data=self.data,
            labels=self.device.labels,
            **capabilities.birth_fields(),
        )

    def cut(self) -> None:
        """Disconnect: the broker publishes the last will."""
        self.step(events.Disconnected())
        now = self._around.timeline.now
        self._lost_at = now
        self._downloads.cut(now)
        self._uploads.cut(now)
        self._send(
            messages.Death(federation=self._around.federation, device=self.device.name, session=self._number)
        )

    def receive(self, message: messages.AnyMessage) -> None:
        """Handle a message of the server; it is lost if the device is offline."""
        if self.online:
            self.step(events.Received(message))

    def download(self, ref: BlobRef) -> None:
        if self.online:
            self._move(self._downloads, ref, self._pace.download_s(clock.transfer_bytes(ref)), Downloaded)

    def sends(self, digest: str) -> bool:
        return digest in self._uploads

    def on_downloaded(self, digest: str, transit: int) -> None:
        """Complete a transfer to the device, unless it was cut."""
        ref = self._downloads.finish(digest, transit)
        if ref is not None:
            self._around.tally.count_sent(self.device.name, clock.transfer_bytes(ref))
            self._around.tally.count_received(self.device.name, self._later_requests(ref))
            self.step(events.BlobChecked(digest, sound=True))

    def on_uploaded(self, digest: str, transit: int) -> BlobRef | None:
        """Complete a transfer from the device; None if it was cut or is no longer needed."""
        ref = self._uploads.finish(digest, transit)
        if ref is not None:
            self._around.tally.count_received(self.device.name, clock.transfer_bytes(ref))
            self._around.tally.count_sent(self.device.name, self._later_requests(ref))
        return ref

    def _later_requests(self, ref: BlobRef) -> int:
        return clock.later_request_bytes(self._around.federation, self.device.name, ref)

    def _move(
        self,
        transits: clock.Transits,
        ref: BlobRef,
        duration_s: float,
        ended: type[Downloaded] | type[Uploaded],
    ) -> None:
        timeline = self._around.timeline
        transit = transits.begin(ref, duration_s, timeline.now)
        if transit is not None and transit.ends_at is not None:
            over = ended(self.device.name, ref.digest, transit.number)
            timeline.post(transit.ends_at + self.latency_s, over)

    def _send(self, message: messages.Message) -> None:
        assert isinstance(message, messages.FromDevice)
        arrives = self._around.timeline.now + self.latency_s
        self._around.timeline.post(arrives, MessageToServer(message, len(messages.encode_message(message))))

    # --- the work ---
    def awaited_job(self, attempt: int) -> Any:
        """The job whose outcome is due now; None if its task was dropped."""
        working = self._session.phase is SessionPhase.WORKING and self._attempt == attempt
        return self._job if working else None

    def finish_work(self, outcome: client_work.Outcome) -> None:
        task = self._session.task
        assert task is not None
        self._job = None
        if outcome.answer is None:
            self.step(events.WorkFailed(task, outcome.reason, outcome.detail))
        else:
            self.step(events.WorkDone(self.in_virtual_time(outcome.answer)))

    def in_virtual_time(self, answer: str) -> events.Result:
        """The result with the training time of this device's board."""
        result = messages.decode_message(answer.encode())
        assert isinstance(result, messages.Update | messages.Delivery)
        if isinstance(result, messages.Delivery):
            return result
        metrics = result.metrics.model_copy(update={"seconds": self._work_s})
        return result.model_copy(update={"metrics": metrics})

    def _start(self, task: messages.Task) -> None:
        timeline = self._around.timeline
        pace = self._pace
        if self._growing is not None:
            pace = replace(pace, examples=self._growing.growth.there.train)
        self._work_s = pace.work_s(task, self._around.work(task), has_features=self._has_features)
        timeline.post(timeline.now + self._work_s, WorkEnded(self.device.name, task.attempt))

    def _match_job(self) -> None:
        """Submit the session's task to the engine as soon as it is known, or cancel its job."""
        task = self._session.task
        wanted = task is not None and self._session.phase in (SessionPhase.FETCHING, SessionPhase.WORKING)
        if self._job is not None and not (wanted and task is not None and task.attempt == self._attempt):
            self._drop_job()
        if wanted and task is not None and self._job is None and task.attempt != self._attempt:
            self._attempt = task.attempt
            # It computes the features of frozen layers when it gets these.
            frozen = {task.blobs[layer.blob].digest for layer in task.frozen}
            self._has_features = frozen.isdisjoint(self._session.receiving)
            trainer, memory = self.device.trainer, clock.free_for_training(self.profile)
            grown = () if self._growing is None else self._growing.begin_job()
            job = client_work.ClientJob(self.device.name, task.model_dump_json(), trainer, memory, *grown)
            self._job = self._around.engine.submit(job)

    def _drop_job(self) -> None:
        if self._job is not None:
            self._around.engine.cancel(self._job)
            self._job = None

    # --- the session ---
    def step(self, event: events.Event) -> None:
        before = self._session
        self._session, commands = machine.step(before, event, self._around.timeline.now)
        if self._session is before and not commands:
            return
        self._downloads.forget(before.receiving.keys() - self._session.receiving.keys())
        self._uploads.forget(_claimed_blobs(before) - _claimed_blobs(self._session))
        self._match_job()
        for command in commands:
            self._do(command)

    def _do(self, command: events.Command) -> None:
        match command:
            case events.SendMessage(message):
                if self.online:
                    self._send(message)
            case events.SendChunks(ref, _, _):
                if self.online:
                    self._move(self._uploads, ref, self._pace.upload_s(clock.transfer_bytes(ref)), Uploaded)
            case events.StartWork(task):
                self._start(task)
            case events.Settled():
                self._on_settled(command)
            case events.DrawEntropy(task):
                self.step(events.EntropyDrawn(task, self._entropy(task)))
            case events.MaskUpdate(update, membership):
                self._mask(update, membership)
            case _:
                pass

    def _entropy(self, task: messages.TrainTask) -> bytes:
        """Deterministic bytes in place of a real device's random ones."""
        named = f"{task.training.seed}/{task.run}/{task.attempt}/{self.device.name}"
        return hashlib.sha256(named.encode()).digest()

    def _mask(self, update: messages.Update, membership: Membership) -> None:
        """Mask an update in no virtual time, which is negligible against training."""
        try:
            masked = mask_update(update, membership, self._around.store, shared=True)
            self.step(events.UpdateMasked(masked))
        except errors.PeerError as error:
            self.step(events.WorkFailed(membership.task, errors.Reason(error.reason), str(error)))

    def _on_settled(self, settled: events.Settled) -> None:
        result = settled.result
        private = client_work.private_state(self._around.clients, self.device.name)
        if settled.refusal is None and isinstance(result, messages.Update):
            private.commit(result.run, result.round, result.attempt)
            if self._growing is not None and self._growing.note_training(result):
                self._describe()
        else:
            private.discard(result.run, result.round, result.attempt)
        self.step(events.BlobsDiscarded(self.needed_blobs()))

    def needed_blobs(self) -> frozenset[str]:
        """Digests of the blobs that may be requested again, which a real device keeps, too."""
        task = self._session.task
        digests = {ref.digest for ref in task.blobs.values()} if task else set()
        return _claimed_blobs(self._session) | digests


def _claimed_blobs(session: Session) -> frozenset[str]:
    return frozenset({session.result.blob.digest} if isinstance(session.result, messages.Update) else ())


def lay_out(task: messages.Task, source: BlobStore, target: BlobStore) -> None:
    """Link a task's blobs into the workers' store, so that they outlive the server's."""
    for ref in task.blobs.values():
        link(source, target, ref.digest)


def link(source: BlobStore, target: BlobStore, digest: str) -> None:
    """Put a blob into another store without copying it."""
    if digest not in target:
        os.link(source.blob_path(digest), target.blob_path(digest))
