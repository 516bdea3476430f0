"""What a device knows of its dealings with the server, and what several parts of them say or forget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from edge_client.agent.session import secure_participation
from edge_client.agent.session.events import Command, Result, StopWork
from edge_client.agent.session.secure_participation import SecureParticipation
from edge_client.agent.session.snapshot import KEPT_RUNS, SessionSnapshot
from edge_client.transport.chunk_transfer import Receiving
from edge_client.transport.object_store.http_transfers import Bypass, StopTransfers
from schemas.messages import Task, TaskReply
from schemas.tensors.chunks import BlobRef

RESEND_S = 5.0
"""How long what was told may stay unanswered before it is told again."""
MAX_LISTENS = 256


class SessionPhase(StrEnum):
    """Where the device is in its task."""

    IDLE = "idle"
    FETCHING = "fetching"
    WORKING = "working"
    REPORTING = "reporting"


@dataclass(frozen=True, slots=True)
class Session:
    """All that a device knows of its dealings with the server.

    `held` are the digests in its blob store; `runs` the runs that it has seen under way, `ended` those of
    them that are over, `attempts` the newest attempt of each. `unanswered` is a result that was told and then
    overtaken by another task: whether it counted is still to be heard. `untold` are the bytes heard on shared
    topics since the server was last told, `repeats` how often the result was sent again. For the
    task at hand `heard` bytes came on shared topics (None: an earlier process heard some) and `fetched` from
    the object store. `masks` is its part
    in masked rounds, `bypass` what goes past the broker.
    """

    federation: str
    device: str
    held: frozenset[str] = frozenset()
    connected: bool = False
    phase: SessionPhase = SessionPhase.IDLE
    task: Task | None = None
    receiving: Mapping[str, Receiving] = field(default_factory=dict)
    result: Result | None = None
    unanswered: Result | None = None
    resend_at: float = 0.0
    repeats: int = 0
    untold: int = 0
    heard: int | None = 0
    fetched: int = 0
    runs: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    masks: SecureParticipation = field(default_factory=SecureParticipation)
    bypass: Bypass = field(default_factory=Bypass)

    def is_at(self, run: str | None, attempt: int | None) -> bool:
        """Whether this is the very attempt of the task at hand."""
        return self.task is not None and (self.task.run, self.task.attempt) == (run, attempt)

    def has_all_of(self, ref: BlobRef) -> bool:
        """Whether every chunk of a blob on its way has come and none of them was lost again."""
        receiving = self.receiving.get(ref.digest)
        return receiving is not None and receiving.complete

    @property
    def listens(self) -> tuple[int, ...]:
        """The shared topics on which something is expected that this device lacks."""
        task, awaited = self.task, self.awaited
        if task is None or not awaited:
            return ()
        numbers = {n for name, n in task.channels.items() if task.blobs[name].digest in awaited}
        return tuple(sorted(numbers)[:MAX_LISTENS])

    @property
    def awaited(self) -> frozenset[str]:
        """The digests of what is to be published for several devices and has not come."""
        return frozenset(digest for digest, one in self.receiving.items() if one.expected)

    def recalls_as(self, earlier: Session) -> bool:
        """Whether `snapshot` is the earlier one's for certain: cheap enough to be asked for every chunk."""
        return (
            self.task is earlier.task
            and self.phase is earlier.phase
            and self.result is earlier.result
            and self.runs is earlier.runs
            and self.attempts is earlier.attempts
            and self.masks is earlier.masks
        )

    @property
    def snapshot(self) -> SessionSnapshot:
        """What a later process must know: nothing of a task that the server has settled."""
        open_task = self.phase is not SessionPhase.IDLE
        runs = sorted(self.runs)[-KEPT_RUNS:]
        return SessionSnapshot(
            federation=self.federation,
            device=self.device,
            task=self.task if open_task else None,
            result=self.result if open_task else None,
            runs=tuple(runs),
            attempts={run: self.attempts[run] for run in runs if run in self.attempts},
            masked=secure_participation.met(self.masks),
        )


Step = tuple[Session, list[Command]]


def task_reply(session: Session, task: Task, *, accepted: bool, **why: Any) -> TaskReply:
    """Whether the device does a task; `why` not, or what it listens to for it."""
    return TaskReply(
        federation=session.federation,
        device=session.device,
        run=task.run,
        round=task.round,
        attempt=task.attempt,
        accepted=accepted,
        **why,
    )


def drop_task(session: Session) -> Step:
    """Without the task at hand; a result of it that was told may still be answered."""
    stop: list[Command] = [StopWork()] if session.phase is SessionPhase.WORKING else []
    stop += [StopTransfers()] if session.bypass.busy else []
    told = session.result if session.phase is SessionPhase.REPORTING else session.unanswered
    idle = replace(session, task=None, phase=SessionPhase.IDLE, receiving={}, result=None, unanswered=told)
    idle = replace(idle, bypass=Bypass())
    return replace(idle, masks=secure_participation.left(session.masks)), stop
