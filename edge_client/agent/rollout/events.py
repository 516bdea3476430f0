"""The events and commands of a trial, besides those that it shares with sessions."""

from dataclasses import dataclass
from pathlib import Path

from edge_client.agent.rollout.state import Trial
from edge_client.agent.session.events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    SendMessage,
    Tick,
)
from edge_client.inference.service.health import Health
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from schemas.messages import ModelOffer, ModelWithdrawal
from schemas.messages.rollout_terms import Cause, ModelMeasurement
from schemas.tensors.chunk_sets import NO_CHUNKS, ChunkSet
from schemas.values import Variant

Objection = tuple[Cause, str]
"""Why a model must not be served, and what was found."""


@dataclass(frozen=True)
class ServedForm:
    """A variant of the offered file that is served in its place, and its sha256."""

    variant: Variant
    digest: str


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples: only the running is right on `lost`, only the new on `won`.

    `running` is None without a model in use. `made`: the candidate is a variant of the offered file.
    Without a `candidate` there is an `objection`.
    """

    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
    lost: int = 0
    won: int = 0
    made: ServedForm | None = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Offered:
    """Event: an offer. `serving`: digest of the model in use; `present`: the stored chunks.

    `objection`: why the file is not even fetched, such as an invalid signature.
    """

    offer: ModelOffer
    present: ChunkSet = NO_CHUNKS
    serving: str | None = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Withdrawn:
    """Event: a version is withdrawn."""

    message: ModelWithdrawal


@dataclass(frozen=True)
class TrialRestored:
    """Event: the trial of an earlier process, and the chunks already stored."""

    trial: Trial
    present: ChunkSet = NO_CHUNKS


@dataclass(frozen=True)
class Compared:
    """Event: the comparison before the switch has ended."""

    rollout: str
    comparison: Comparison


@dataclass(frozen=True)
class Rechecked:
    """Event: the watched model was compared again.

    `before`, `after`: serving health of the former model and of this one; `serving`: digest of that in use.
    """

    rollout: str
    comparison: Comparison
    serving: str | None
    before: Health | None = None
    after: Health | None = None


@dataclass(frozen=True)
class Switched:
    """Event: the new model is in use."""


@dataclass(frozen=True)
class SwitchFailed:
    """Event: the new model could not be put in use; the former one is in use."""

    cause: Cause
    detail: str


@dataclass(frozen=True)
class RolledBack:
    """Event: the former model is in use again, or `detail` says why not."""

    detail: str = ""


Event = (
    Offered
    | Withdrawn
    | TrialRestored
    | Connected
    | Disconnected
    | ChunkArrived
    | ChunkLost
    | BlobChecked
    | Compared
    | Rechecked
    | Switched
    | SwitchFailed
    | RolledBack
    | Tick
)


@dataclass(frozen=True)
class Compare:
    """Command: compare the offered model with the one in use; answered by `Compared`."""

    offer: ModelOffer


@dataclass(frozen=True)
class Recheck:
    """Command: compare the model in use with the former one; answered by `Rechecked`."""

    offer: ModelOffer


@dataclass(frozen=True)
class Switch:
    """Command: put the offered model in use; answered by `Switched` or `SwitchFailed`."""

    trial: Trial


@dataclass(frozen=True)
class RollBack:
    """Command: use the former model again if this digest is in use; answered by `RolledBack`."""

    digest: str


@dataclass(frozen=True)
class DiscardFiles:
    """Command: remove the fetched file."""


Command = SendMessage | WriteChunk | VerifyBlob | Compare | Recheck | Switch | RollBack | DiscardFiles


def trial_path(state: Path) -> Path:
    """The file of the trial, in a state folder."""
    return state / "rollout" / "trial.json"


@dataclass(frozen=True)
class ComparisonEnded:
    """Event in the agent's inbox: the comparison that `command` asked for has ended."""

    command: Compare | Recheck
    comparison: Comparison
