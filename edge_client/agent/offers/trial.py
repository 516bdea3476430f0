"""A trial of an offer: what is saved of it, its state, and its events and commands.

    offered -> fetched -> (compared | installed -> checked) -> switched -> (watched) -> kept
        |         |           |            |                       |
        +---------+-----------+------------+--> refused            +------> rolled back

Offered are models (`rollout/trial.py`) and releases of the client (`client_update/trial.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from edge_client.agent.session import events
from edge_client.transport.chunk_transfer import Receiving, VerifyBlob, WriteChunk
from schemas.messages import ClientOffer, ClientWithdrawal, Message, ModelOffer, ModelWithdrawal
from schemas.tensors.chunks import NO_CHUNKS, Chunk, ChunkSet

Offer = ModelOffer | ClientOffer
Withdrawal = ModelWithdrawal | ClientWithdrawal
Objection = tuple[StrEnum, str]  # Why a version must not be in use: the cause, and what was found
OFFERED, FETCHED, SWITCHED, KEPT, REFUSED, ROLLED_BACK = (
    *("offered", "fetched", "switched"),
    *("kept", "refused", "rolled-back"),
)
"""The stages of every trial; each kind has its own between fetched and switched."""
FINAL = frozenset({KEPT, REFUSED, ROLLED_BACK})


class Trial(BaseModel):
    """The offer and its stage: what is saved before it is acted on.

    `cause`: why it ended. `going_back`: the return to the former version is pending. `had_it`: the offered
    version was already in use. `restarts`: processes that have found the offer in a stage of `counted`.
    `steps`: the stage to which the work in a stage leads, before the switch.
    """

    model_config = ConfigDict(frozen=True)
    causes: ClassVar[type[StrEnum]]
    steps: ClassVar[Mapping[str, StrEnum]]
    counted: ClassVar[frozenset[str]]

    offer: Offer
    stage: StrEnum
    cause: StrEnum | None = None
    detail: str = ""
    going_back: bool = False
    had_it: bool = False
    restarts: int = Field(default=0, ge=0)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The trial in the bytes of its file; raises `ValueError`, `TypeError` or `KeyError` for others."""
        return cls.model_validate_json(data)

    @property
    def is_final(self) -> bool:
        """Whether nothing remains to be done."""
        return self.stage in FINAL and not self.going_back

    @property
    def is_ready(self) -> bool:
        """Whether the switch is next, or may have been made by a process that ended before saving it."""
        return self.stage not in FINAL | {OFFERED, SWITCHED} and self.stage not in self.steps

    def at(self, stage: str, **more: Any) -> Self:
        """The same offer at another stage."""
        return self.model_copy(update={"stage": type(self.stage)(stage), **more})

    def with_end(self, stage: str, objection: Objection, *, going_back: bool = False) -> Self:
        """The same offer refused or rolled back, or with the return to the former version pending."""
        return self.at(stage, cause=objection[0], detail=objection[1], going_back=going_back)

    def with_restart(self) -> Self:
        """The same offer in the next process."""
        counts = self.stage in self.counted and not self.going_back
        return self.model_copy(update={"restarts": self.restarts + counts})

    def stage_text(self) -> str:
        """The stage in words, with the cause of a refusal or return."""
        return str(self.stage) if self.cause is None else f"{self.stage} ({self.cause}) {self.detail}"


# --- events, besides those that trials share with sessions ---
@dataclass(frozen=True)
class Offered:
    """Event: an offer. `in_use`: digest of the file in use; `present`: the stored chunks.

    `objection`: why the file is not even fetched, such as an invalid signature.
    """

    offer: Offer
    present: ChunkSet = NO_CHUNKS
    in_use: str | None = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Withdrawn:
    """Event: a version is withdrawn."""

    message: Withdrawal


@dataclass(frozen=True)
class Restored:
    """Event: the trial of an earlier process, and the chunks already stored.

    `runs_it`: this process is of the offered release. `back`: why the launcher has gone back, if it has.
    """

    trial: Trial
    present: ChunkSet = NO_CHUNKS
    runs_it: bool = False
    back: Objection | None = None


@dataclass(frozen=True)
class Work:
    """Command: do the work that leads to the stage `goal`; answered by `Worked`."""

    offer: Offer
    goal: str


@dataclass(frozen=True)
class Worked:
    """Event, also in the agent's inbox: the work has ended, with a result or with an objection."""

    work: Work
    result: Any = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Switched:
    """Event: the new version is in use, or will be with the next start; `notes` are fields of the trial."""

    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SwitchFailed:
    """Event: the new version could not be put in use; the former one is in use."""

    objection: Objection


@dataclass(frozen=True)
class RolledBack:
    """Event: the former version is in use again, or `detail` says why not.

    `restarts`: this process is of the new version, so that it must end for the former one to run.
    """

    detail: str = ""
    restarts: bool = False


FileEvent = events.ChunkArrived | events.ChunkLost | events.BlobChecked
Event = (
    (Offered | Withdrawn | Restored | Worked | Switched | SwitchFailed | RolledBack)
    | (events.Connected | events.Disconnected | events.Tick)
    | FileEvent
)


# --- commands ---
@dataclass(frozen=True)
class Switch:
    """Command: put the offered version in use; answered by `Switched` or `SwitchFailed`."""

    trial: Trial


@dataclass(frozen=True)
class RollBack:
    """Command: use the former version again if the offered one is in use; answered by `RolledBack`."""

    trial: Trial


@dataclass(frozen=True)
class Restart:
    """Command: end this process, so that the launcher starts the version in use."""


@dataclass(frozen=True)
class CleanUp:
    """Command: remove what the trial has left: the fetched file, and the note that the launcher follows."""


Command = events.SendMessage | WriteChunk | VerifyBlob | Work | Switch | RollBack | Restart | CleanUp


# --- the state ---
@dataclass(frozen=True)
class TrialState:
    """The device and its last trial, with the download of the offered file while it lasts.

    `busy`: work is under way. `runs_it`: this process is of the offered release.
    """

    federation: str
    device: str
    connected: bool = False
    receiving: Receiving | None = None
    trial: Trial | None = None
    busy: bool = False
    runs_it: bool = False

    @property
    def is_undecided(self) -> bool:
        """Whether another offer must wait until this trial has ended."""
        return False

    def expects(self, chunk: Chunk) -> bool:
        """Whether the chunk belongs to the offered file."""
        return self.receiving is not None and self.receiving.ref.digest.startswith(chunk.prefix)

    def with_trial(self, trial: Trial, **more: Any) -> Self:
        return replace(self, trial=trial, **more)

    def with_link(self, now: float, *, connected: bool) -> Self:
        return replace(self, connected=connected)

    def with_restored(self, event: Restored, now: float) -> Self:
        """The state with the trial of an earlier process, which may have ended since."""
        return self.with_trial(event.trial.with_restart(), runs_it=event.runs_it)

    def about(self) -> dict[str, Any]:
        """What the reports of all kinds have in common."""
        trial = self.trial
        assert trial is not None
        return {
            "federation": self.federation,
            "device": self.device,
            "rollout": trial.offer.rollout,
            "version": trial.offer.version,
            "stage": trial.stage,
            "cause": trial.cause,
            "detail": trial.detail[:500],
        }

    def make_trial(self, offer: Any) -> Trial:
        raise NotImplementedError

    def report(self) -> Message:
        raise NotImplementedError

    def judge(self, event: Worked) -> tuple[Trial, Objection | None]:
        """The trial with what the work before the switch has measured, and the objection to the version."""
        assert self.trial is not None
        return self.trial, event.objection

    def watch(self, now: float) -> tuple[Self, Sequence[Command]]:
        """Begin the watch: the new version has been switched to."""
        raise NotImplementedError

    def resume_watch(self, now: float) -> tuple[Self, Sequence[Command]]:
        """Go on with the watch in another process."""
        raise NotImplementedError

    def look(self, now: float) -> tuple[Self, Sequence[Command]]:
        """Time has passed while the version in use is watched."""
        raise NotImplementedError

    def on_look(self, event: Worked, now: float) -> tuple[Self, Sequence[Command]]:
        """Decide whether the version in use is kept, after work towards that stage."""
        raise NotImplementedError
