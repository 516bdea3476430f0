"""What may happen to a trial (events) and what it wants done (commands), beside what a session knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.agent.session.events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    Tick,
)
from edge_client.inference.service.health import Health
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from schemas.messages import Message, ModelOffer, ModelWithdrawal
from schemas.messages.rollout_terms import Cause, ModelMeasurement
from schemas.values import Variant

if TYPE_CHECKING:
    from edge_client.agent.rollout.state import Trial

Objection = tuple[Cause, str]
"""Why a model is not to be served, and what was found."""


@dataclass(frozen=True)
class ServedForm:
    """Another form of the offered file that is served in its place, and its own sha256."""

    variant: Variant
    digest: str


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples; of those that they disagree on, the new one has `lost` so many.

    `running` is None where there was none; `made` is there where another form than the offered file is the
    candidate. Without a `candidate` there is an `objection`.
    """

    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
    lost: int = 0
    won: int = 0
    made: ServedForm | None = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Offered:
    """Event: an offer. `serving` is the digest of the model in use, `present` what is here of the new one.

    `objection` is what speaks against it before it is even fetched: a signature that is not good.
    """

    offer: ModelOffer
    present: int = 0
    serving: str | None = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Withdrawn:
    """Event: a version is taken back."""

    message: ModelWithdrawal


@dataclass(frozen=True)
class TrialRestored:
    """Event: what an earlier process of this device was at, and the chunks that it had."""

    trial: Trial
    present: int = 0


@dataclass(frozen=True)
class Compared:
    """Event: the comparison before the switch has ended, in that rollout."""

    rollout: str
    comparison: Comparison


@dataclass(frozen=True)
class Rechecked:
    """Event: a look at the model while it is watched: compared again, and how serving has gone.

    `before` and `after` are the health of the former model and of this one; `serving` is what is in use now.
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
    """Event: the new model could not be put in its place; the one before is in use."""

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
class SendRolloutMessage:
    """Command: publish a message on the device's rollout topic."""

    message: Message


@dataclass(frozen=True)
class Compare:
    """Command: run the offered model beside the one in use, then say `Compared`."""

    offer: ModelOffer


@dataclass(frozen=True)
class Recheck:
    """Command: run the model in use beside the former one, then say `Rechecked`."""

    offer: ModelOffer


@dataclass(frozen=True)
class Switch:
    """Command: put the offered model in its place, then say `Switched` or `SwitchFailed`."""

    trial: Trial


@dataclass(frozen=True)
class RollBack:
    """Command: use the former model again, if that of this digest is in use; then say `RolledBack`."""

    digest: str


@dataclass(frozen=True)
class DiscardFiles:
    """Command: the file that was fetched is needed no more."""


Command = SendRolloutMessage | WriteChunk | VerifyBlob | Compare | Recheck | Switch | RollBack | DiscardFiles


def trial_path(state: Path) -> Path:
    """Where a device keeps its trial, below its state folder."""
    return state / "rollout" / "trial.json"


@dataclass(frozen=True)
class ComparisonEnded:
    """Event in the agent's inbox: a comparison has ended; `of` is what asked for it."""

    of: Compare | Recheck
    comparison: Comparison
