"""The events and commands of a device's session."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.transport.chunk_transfer import RequestChunks, TransferCommand, VerifyBlob, WriteChunk
from edge_client.transport.object_store.http_transfers import ObjectStoreCommand, ObjectStoreEvent
from schemas import errors, messages
from schemas.tensors.chunks import BlobRef, Chunk, ChunkSet

Result = (
    messages.Update | messages.Delivery | messages.TaskReply
)  # what a task ends in; a reply if the device could not do it


@dataclass(frozen=True)
class Connected:
    """Event: the link to the broker is up."""


@dataclass(frozen=True)
class Disconnected:
    """Event: the link to the broker is down."""


@dataclass(frozen=True)
class SessionRestored:
    """Event: the snapshot of an earlier process; `present` as in `Received`."""

    snapshot: SessionSnapshot
    present: Mapping[str, ChunkSet] = field(default_factory=dict)


@dataclass(frozen=True)
class EpochReached:
    """Event: the work on a task has reached the end of this epoch, from 1."""

    task: messages.Task
    epoch: int


@dataclass(frozen=True)
class Stopping:
    """Event: the process is about to end as its owner wishes."""


@dataclass(frozen=True)
class Received:
    """Event: a message of the server.

    For a task, `present` maps the digests of its blobs to the chunks that are already stored.
    """

    message: messages.AnyMessage
    present: Mapping[str, ChunkSet] = field(default_factory=dict)


@dataclass(frozen=True)
class ChunkArrived:
    """Event: a chunk of a blob; `shared`: it was published for several devices."""

    chunk: Chunk
    shared: bool = False


@dataclass(frozen=True)
class BlobChecked:
    """Event: a complete blob was verified; one that is not `sound` was deleted."""

    digest: str
    sound: bool


@dataclass(frozen=True)
class ChunkLost:
    """Event: a chunk could not be stored."""

    digest: str
    index: int


@dataclass(frozen=True)
class BlobsDiscarded:
    """Event: blobs were removed from the store; `held` are the digests of those that remain."""

    held: frozenset[str]


@dataclass(frozen=True)
class ChunkBytesLimited:
    """Event: the broker passes chunks of at most this many bytes on."""

    chunk_bytes: int


@dataclass(frozen=True)
class WorkDone:
    """Event: the task ended with this result, whose blob, if any, is in the blob store."""

    result: Result


@dataclass(frozen=True)
class WorkFailed:
    """Event: the task failed."""

    task: messages.Task
    reason: errors.Reason
    detail: str


@dataclass(frozen=True)
class Declined:
    """Event: the device declines an offered task: not trusted, not suitable, or not eligible now."""

    task: messages.Task
    reason: errors.Reason
    detail: str


@dataclass(frozen=True)
class GivenBack:
    """Event: the eligibility rules have held the task at hand for too long."""

    detail: str


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True)
class EntropyDrawn:
    """Event: fresh randomness for the masks of this attempt only."""

    task: messages.TrainTask
    entropy: bytes = field(repr=False)


@dataclass(frozen=True)
class UpdateMasked:
    """Event: the update is masked; its blob is in the blob store."""

    update: messages.Update


Event = (
    Connected | Disconnected | SessionRestored | EpochReached | Stopping | Received | ChunkArrived | ChunkLost
    | BlobChecked | BlobsDiscarded | ChunkBytesLimited | WorkDone | WorkFailed | Declined | GivenBack
    | EntropyDrawn | UpdateMasked | ObjectStoreEvent | Tick
)  # fmt: skip


@dataclass(frozen=True)
class SendMessage:
    """Command: publish a message to the server."""

    message: messages.Message


@dataclass(frozen=True)
class SendChunks:
    """Command: publish chunks of a blob in the blob store."""

    ref: BlobRef
    first: int
    count: int


@dataclass(frozen=True)
class StartWork:
    """Command: do the task, all of whose blobs are stored."""

    task: messages.Task


@dataclass(frozen=True)
class StopWork:
    """Command: end the work on the task, which is no longer wanted."""


@dataclass(frozen=True)
class Settled:
    """Notification: the server has accepted the result, or refused it."""

    result: Result
    refusal: messages.Refusal | None = None


@dataclass(frozen=True)
class RunEnded:
    """Notification: a run that this device took part in is over."""

    end: messages.FederationEnd


@dataclass(frozen=True)
class DrawEntropy:
    """Command: draw 32 random bytes for this task; answered by `EntropyDrawn`."""

    task: messages.TrainTask


@dataclass(frozen=True)
class MaskUpdate:
    """Command: mask the trained update with the agreed masks; answered by `UpdateMasked`."""

    update: messages.Update
    membership: Membership


Command = (
    SendMessage | SendChunks | StartWork | StopWork | Settled | RunEnded | WriteChunk | VerifyBlob
    | DrawEntropy | MaskUpdate | ObjectStoreCommand
)  # fmt: skip


def as_messages(
    commands: Iterable[TransferCommand], federation: str, device: str
) -> list[SendMessage | WriteChunk | VerifyBlob]:
    """A transfer's commands, with its requests as messages."""
    return [
        SendMessage(command.request(federation, device)) if isinstance(command, RequestChunks) else command
        for command in commands
    ]
