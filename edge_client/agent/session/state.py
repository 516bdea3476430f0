"""The state of a device's session with the server, and functions that several of its parts share."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from edge_client.agent.session import events, secure_participation
from edge_client.agent.session.secure_participation import SecureParticipation
from edge_client.agent.session.snapshot import KEPT_RUNS, SessionSnapshot, WorkStarts
from edge_client.transport.chunk_transfer import Receiving
from edge_client.transport.object_store.http_transfers import ObjectStoreTransfers, StopTransfers
from schemas.messages import Task, TaskReply
from schemas.tensors.chunks import BlobRef

RESEND_S = 5.0  # seconds before an unanswered message is repeated
MAX_LISTENS = 256


class SessionPhase(StrEnum):
    IDLE = "idle"
    FETCHING = "fetching"
    WORKING = "working"
    REPORTING = "reporting"


@dataclass(frozen=True, slots=True)
class Session:
    """The state of a device's session with the server.

    `held`: the digests in the blob store. `runs`: the runs under way; `ended_runs`: those that are over;
    `attempts`: the newest attempt of each run; `epochs`: its newest epoch, of runs that have changed their
    server. `unanswered`: a result whose task was replaced before the server answered. `starts`: as in the
    snapshot. `repeats`: how often the result was sent again. `shared_bytes`: received on shared topics
    for the task at hand (None: unknown, an earlier process received some); `unreported_bytes`: since the last
    progress report; `fetched_bytes`: from the object store. `masks`: the state in masked rounds; `transfers`:
    those with the object store.
    """

    federation: str
    device: str
    held: frozenset[str] = frozenset()
    connected: bool = False
    phase: SessionPhase = SessionPhase.IDLE
    task: Task | None = None
    receiving: Mapping[str, Receiving] = field(default_factory=dict)
    result: events.Result | None = None
    unanswered: events.Result | None = None
    resend_at: float = 0.0
    repeats: int = 0
    unreported_bytes: int = 0
    shared_bytes: int | None = 0
    fetched_bytes: int = 0
    runs: frozenset[str] = frozenset()
    ended_runs: frozenset[str] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    starts: WorkStarts | None = None
    masks: SecureParticipation = field(default_factory=SecureParticipation)
    transfers: ObjectStoreTransfers = field(default_factory=ObjectStoreTransfers)

    def is_at(self, run: str | None, attempt: int | None) -> bool:
        return self.task is not None and (self.task.run, self.task.attempt) == (run, attempt)

    def has_all_of(self, ref: BlobRef) -> bool:
        """Whether every chunk of a blob that is being downloaded is stored."""
        receiving = self.receiving.get(ref.digest)
        return receiving is not None and receiving.complete

    @property
    def listens(self) -> tuple[int, ...]:
        """The shared topics on which missing blobs are broadcast."""
        task, awaited = self.task, self.awaited_digests
        if task is None or not awaited:
            return ()
        numbers = {n for name, n in task.channels.items() if task.blobs[name].digest in awaited}
        return tuple(sorted(numbers)[:MAX_LISTENS])

    @property
    def awaited_digests(self) -> frozenset[str]:
        """The digests of broadcast blobs that are not complete."""
        return frozenset(digest for digest, receiving in self.receiving.items() if receiving.expected)

    def recalls_as(self, earlier: "Session") -> bool:
        """Whether both certainly have the same snapshot; cheap enough to be called for every chunk."""
        return (
            self.task is earlier.task
            and self.phase is earlier.phase
            and self.result is earlier.result
            and self.runs is earlier.runs
            and self.attempts is earlier.attempts
            and self.epochs is earlier.epochs
            and self.starts is earlier.starts
            and self.masks is earlier.masks
        )

    @property
    def snapshot(self) -> SessionSnapshot:
        """What a later process must know; a settled task is not part of it."""
        open_task = self.phase is not SessionPhase.IDLE
        runs = sorted(self.runs)[-KEPT_RUNS:]
        return SessionSnapshot(
            federation=self.federation,
            device=self.device,
            task=self.task if open_task else None,
            result=self.result if open_task else None,
            runs=tuple(runs),
            attempts={run: self.attempts[run] for run in runs if run in self.attempts},
            epochs={run: self.epochs[run] for run in runs if run in self.epochs},
            masked=secure_participation.masked_rounds(self.masks),
            starts=self.starts,
        )


Step = tuple[Session, list[events.Command]]


def task_reply(session: Session, task: Task, *, accepted: bool, **details: Any) -> TaskReply:
    """Accept or decline a task; `details` are a reason, or the shared topics that are subscribed."""
    return TaskReply(
        federation=session.federation,
        device=session.device,
        run=task.run,
        round=task.round,
        attempt=task.attempt,
        accepted=accepted,
        **details,
    )


def drop_task(session: Session) -> Step:
    """The session without the task at hand; the server may still answer a result that was sent."""
    stop: list[events.Command] = [events.StopWork()] if session.phase is SessionPhase.WORKING else []
    stop += [StopTransfers()] if session.transfers.busy else []
    unanswered = session.result if session.phase is SessionPhase.REPORTING else session.unanswered
    idle = replace(session, task=None, phase=SessionPhase.IDLE, receiving={}, result=None)
    masks = replace(session.masks, membership=None, trained=None)
    return replace(idle, unanswered=unanswered, transfers=ObjectStoreTransfers(), masks=masks), stop
