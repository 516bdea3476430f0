"""The slow jobs of a server: each runs in another thread and ends as an event in the server's inbox."""

import contextlib
import queue
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from edge_client.transport.broker_link import Inbox
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.round_record import RoundFigures, closed_event
from edge_server.rounds import events
from edge_server.rounds.participant import AT_WORK, Participant
from edge_server.rounds.participants import Participants
from edge_server.rounds.sites.sums import Summing
from edge_server.rounds.state import Federation, Phase
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.journal import Journal
from schemas.messages import Task, TrainTask
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, ChunkSet


def reissue_tasks(
    federation: Federation, restored: int, signer: ManifestSigner, journal: Journal, *, now: float
) -> Federation:
    """The federation with open tasks of attempts up to `restored` under later ones, journalled and signed.

    They have the full time from `now` on, in seconds of the server's clock. Accepted updates, and tasks that
    a later start of the server finds again, stay as they are.
    """
    by_attempt: dict[int, list[Participant]] = defaultdict(list)
    for participant in federation.participants.values():
        attempt = participant.assignment.task.attempt
        if participant.status in AT_WORK and attempt <= restored:
            by_attempt[attempt].append(participant)
    changed = dict(federation.participants)
    last, deadline = federation.attempt, now + federation.rules.deadline_s
    for _, participants in sorted(by_attempt.items()):
        last += 1
        again = [_again(participant, last, signer) for participant in participants]
        changed |= {part.device: replace(part, deadline=deadline, began=now) for part in again}
        journal.write_planning(
            last,
            again[0].assignment.task.round,
            {participant.device: participant.assignment for participant in again},
            deliver=federation.phase is Phase.DELIVERING,
        )
    return replace(federation, attempt=last, participants=Participants.of(changed.values()))


def _again(participant: Participant, attempt: int, signer: ManifestSigner) -> Participant:
    """The participant as it was offered, with the task under a new number, signed if it was."""
    before, assignment = participant.assignment.task.manifest, participant.assignment
    task = assignment.task.model_copy(update={"attempt": attempt, "manifest": None})
    if before is not None:
        parent = before.manifest.parent_sha256 or ""
        task = signer.task(task, participant.device, parent_sha256=parent)
    return Participant(participant.device, replace(assignment, task=task), participant.deadline)


COLLECTORS = 4  # Updates that are fetched from the object store at once
CHECKS_AT_ONCE = 128  # Most updates that are checked together, so that all of them wait for the disk once


@dataclass(frozen=True)
class JobDone:
    """Event: a job has ended; `event` is its result for the round machine."""

    event: events.Event


@dataclass(frozen=True)
class Collected:
    """Event: an update was fetched, if it was `there`; `have` are its chunks."""

    command: events.CheckUpdate
    there: bool
    have: ChunkSet = NO_CHUNKS


@dataclass(frozen=True)
class ChecksDone:
    """Event: some updates were checked."""

    checks: tuple[events.UpdateChecked, ...]


@dataclass(frozen=True)
class RoundRecorded:
    """Event: the last closed round has its line of history."""


@dataclass(frozen=True)
class JobFailed:
    """Event: a job has raised an exception."""

    error: BaseException


class Jobs:
    """Runs the coordinator's jobs in one thread, in order, and fetches updates in several others."""

    def __init__(self, coordinator: Coordinator, inbox: Inbox) -> None:
        self._coordinator, self._inbox = coordinator, inbox
        self._in_turn = ThreadPoolExecutor(max_workers=1, thread_name_prefix="coordinator")
        self._collectors = ThreadPoolExecutor(max_workers=COLLECTORS, thread_name_prefix="collector")
        self._unchecked: queue.SimpleQueue[tuple[events.CheckUpdate, TrainTask]] = queue.SimpleQueue()
        self._exported: Future[dict[int, Path]] | None = None
        self._open: set[Future[Any]] = set()

    @property
    def open_count(self) -> int:
        """The number of jobs that run or wait."""
        return len(self._open)

    def plan(self, command: events.PlanRound, chunk_bytes: int) -> None:
        """Plan a round, or a delivery, whose blobs travel in chunks of `chunk_bytes`."""
        self._begin(partial(_plan, self._coordinator, command, chunk_bytes))

    def export_tiers(self) -> None:
        """Export the tiers' models; a second call does nothing."""
        if self._exported is None:
            self._exported = self._in_turn.submit(self._coordinator.exporter.export_tiers)

    def collect(self, command: events.CheckUpdate) -> None:
        self._follow(self._collectors.submit(_collect, self._coordinator, command))

    def check(self, command: events.CheckUpdate, task: TrainTask) -> None:
        self._unchecked.put((command, task))
        self._begin(partial(_check, self._coordinator, self._unchecked))

    def close_round(self, command: events.CloseRound, figures: RoundFigures) -> None:
        self._begin(partial(_close, self._coordinator, command, figures))

    def record_round(self) -> None:
        """Write the line of the last closed round as soon as its model is tested."""

        def begin() -> None:
            # Once the jobs have ended, the server itself does this.
            with contextlib.suppress(RuntimeError):
                self._begin(partial(_record, self._coordinator))

        self._coordinator.recorder.when_due(begin)

    def weigh(self, close: events.CloseRound) -> None:
        self._begin(lambda: JobDone(self._coordinator.aggregator.weigh(close)))

    def check_sum(self, command: events.CheckSum, summing: Summing | None) -> None:
        """Check a site's sum, if the round still waits for it."""
        if summing is not None and command.site in summing.asked.requests:
            weights = summing.asked.requests[command.site].weights
            updates = [summing.close.updates[device] for device in weights]
            self._begin(lambda: JobDone(self._coordinator.sums.check(command, weights, updates)))

    def roll_back(self, command: events.RollBack) -> None:
        self._begin(lambda: JobDone(self._coordinator.rollback.undo(command)))

    def repair(self, digest: str, tasks: Sequence[Task]) -> None:
        self._begin(lambda: JobDone(events.BlobsLost(self._coordinator.repair.repair([digest], tasks))))

    def in_turn(self, job: Callable[[], None]) -> None:
        """Run a function while no other job does."""
        self._follow(self._in_turn.submit(job))

    def publish(self, refs: Iterable[BlobRef]) -> None:
        """Put blobs into the object store, if there is one."""
        storage = self._coordinator.storage
        if storage.object_store is not None:
            self._in_turn.submit(storage.object_store.publish, refs, storage.store)

    def exported_files(self) -> Mapping[int, Path]:
        """The exported files by tier; empty if none were to be exported. Raises what the export raised."""
        if self._exported is None or self._exported.cancelled():
            return {}
        return self._exported.result()

    def end(self, *, finished: bool) -> None:
        """Wait for the running job; waiting jobs run only if the run has `finished`."""
        self._collectors.shutdown(wait=False, cancel_futures=True)
        self._in_turn.shutdown(wait=True, cancel_futures=not finished)

    def _begin(self, job: Callable[[], JobDone | ChecksDone | RoundRecorded]) -> None:
        self._follow(self._in_turn.submit(job))

    def _follow(self, future: Future[Any]) -> None:
        self._open.add(future)
        future.add_done_callback(self._on_end)

    def _on_end(self, future: Future[Any]) -> None:
        self._open.discard(future)
        if future.cancelled():
            return
        error = future.exception()
        self._inbox.put(future.result() if error is None else JobFailed(error))


def _plan(coordinator: Coordinator, command: events.PlanRound, chunk_bytes: int) -> JobDone:
    with coordinator.context.durations.time_block("planning"):
        planned = coordinator.planner.plan(command, chunk_bytes=chunk_bytes)
    if not command.deliver:
        coordinator.early_graphs.begin()
    return JobDone(planned)


def _check(
    coordinator: Coordinator, waiting: queue.SimpleQueue[tuple[events.CheckUpdate, TrainTask]]
) -> ChecksDone:
    """Check all waiting updates. Each update adds one such job, so some jobs find nothing left to do."""
    checks: list[tuple[events.CheckUpdate, TrainTask]] = []
    with contextlib.suppress(queue.Empty):
        while len(checks) < CHECKS_AT_ONCE:
            checks.append(waiting.get_nowait())
    if not checks:
        return ChecksDone(())
    with coordinator.context.durations.time_block("checking"):
        return ChecksDone(tuple(coordinator.checker.check_all(checks, coordinator.model.state)))


def _collect(coordinator: Coordinator, command: events.CheckUpdate) -> Collected:
    store, remote = coordinator.storage.store, coordinator.storage.object_store
    there = remote is not None and remote.collect(command.update, store)
    return Collected(command, there, store.present(command.update.blob))


def _close(coordinator: Coordinator, command: events.CloseRound, figures: RoundFigures) -> JobDone:
    with coordinator.context.durations.time_block("closing"):
        return JobDone(closed_event(coordinator.aggregator.close(command, figures)))


def _record(coordinator: Coordinator) -> RoundRecorded:
    coordinator.recorder.record_round()
    return RoundRecorded()
