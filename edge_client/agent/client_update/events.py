"""The events and commands of a client update, besides those that it shares with sessions."""

from dataclasses import dataclass
from pathlib import Path

from edge_client.agent.client_update.state import Update
from edge_client.agent.session.events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Connected,
    Disconnected,
    SendMessage,
    Tick,
)
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from schemas.messages import ClientOffer, ClientWithdrawal
from schemas.messages.client_update import UpdateCause
from schemas.tensors.chunk_sets import NO_CHUNKS, ChunkSet

Objection = tuple[UpdateCause, str]
"""Why a release must not run, and what was found."""


@dataclass(frozen=True)
class Offered:
    """Event: an offer. `running`: digest of the release of this process; `present`: the stored chunks.

    `objection`: why the archive is not even fetched, such as an invalid signature.
    """

    offer: ClientOffer
    present: ChunkSet = NO_CHUNKS
    running: str | None = None
    objection: Objection | None = None


@dataclass(frozen=True)
class Withdrawn:
    """Event: a release is withdrawn."""

    message: ClientWithdrawal


@dataclass(frozen=True)
class UpdateRestored:
    """Event: the update of an earlier process, and the chunks already stored.

    `runs_it`: this process is of the offered release. `back`: why the launcher has gone back, if it has.
    """

    update: Update
    present: ChunkSet = NO_CHUNKS
    runs_it: bool = False
    back: Objection | None = None


@dataclass(frozen=True)
class Installed:
    """Event: the spare slot holds the release."""

    rollout: str


@dataclass(frozen=True)
class Checked:
    """Event: the doctor and the model's inference have passed with the release."""

    rollout: str


@dataclass(frozen=True)
class Failed:
    """Event: the release was not installed, has failed a check, or cannot be switched to."""

    rollout: str
    objection: Objection


@dataclass(frozen=True)
class Switched:
    """Event: the next start is one of the release, which was in `slot`; `former` was in use before."""

    slot: str
    former: str


@dataclass(frozen=True)
class RolledBack:
    """Event: the former environment is in use again, or `detail` says why not.

    `restarts`: this process is of the release, so that it must end for the former one to run.
    """

    detail: str = ""
    restarts: bool = False


Event = (
    Offered
    | Withdrawn
    | UpdateRestored
    | Connected
    | Disconnected
    | ChunkArrived
    | ChunkLost
    | BlobChecked
    | Installed
    | Checked
    | Failed
    | Switched
    | RolledBack
    | Tick
)


@dataclass(frozen=True)
class Install:
    """Command: install the archive into the spare slot; answered by `Installed` or `Failed`."""

    offer: ClientOffer


@dataclass(frozen=True)
class Check:
    """Command: run the doctor and the model with the spare slot; answered by `Checked` or `Failed`."""

    offer: ClientOffer


@dataclass(frozen=True)
class Switch:
    """Command: let the next start be one of the spare slot; answered by `Switched` or `Failed`."""

    offer: ClientOffer


@dataclass(frozen=True)
class RollBack:
    """Command: let the next start be one of the former environment; answered by `RolledBack`."""

    update: Update


@dataclass(frozen=True)
class EndTrial:
    """Command: tell the launcher that the environment in use is no longer watched."""


@dataclass(frozen=True)
class Restart:
    """Command: end this process, so that the launcher starts the environment in use."""


@dataclass(frozen=True)
class DiscardFiles:
    """Command: remove the fetched archive."""


Command = (
    SendMessage
    | WriteChunk
    | VerifyBlob
    | Install
    | Check
    | Switch
    | RollBack
    | EndTrial
    | Restart
    | DiscardFiles
)


@dataclass(frozen=True)
class WorkEnded:
    """Event in the agent's inbox: what another thread was asked to do has ended."""

    event: Installed | Checked | Failed


def update_path(root: Path) -> Path:
    """The file of the update, in the folder of the slots."""
    return root / "update.json"
