"""What may happen to a device's session (events) and what it wants done (commands)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_client.transport.object_store.http_transfers import BypassCommand, BypassEvent
from schemas.messages import AnyMessage, Delivery, FederationEnd, Message, Refusal, Task, TaskReply, Update
from schemas.tensors.chunks import BlobRef, Chunk
from schemas.values import Reason

Result = Update | Delivery | TaskReply
"""What a task ends in; the reply is that of a device that could not do it."""


@dataclass(frozen=True)
class Connected:
    """Event: the link to the broker is up."""


@dataclass(frozen=True)
class Disconnected:
    """Event: the link to the broker is down."""


@dataclass(frozen=True)
class SessionRestored:
    """Event: what an earlier process of this device was at, and what is half there of its task's blobs."""

    memory: SessionSnapshot
    present: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """Event: a message for this device, or for all.

    With a task comes what is half there of its blobs: `present`, bitmaps of chunk numbers by digest.
    """

    message: AnyMessage
    present: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ChunkArrived:
    """Event: a chunk of some blob; `shared` where it was published for several devices."""

    chunk: Chunk
    shared: bool = False


@dataclass(frozen=True)
class BlobChecked:
    """Event: a blob that was complete has been verified, or thrown away."""

    digest: str
    sound: bool


@dataclass(frozen=True)
class ChunkLost:
    """Event: a chunk that arrived could not be kept; `index` of blob `digest`."""

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
    """Event: the task ended with this result; `blob`, if any, lies in the store."""

    result: Result


@dataclass(frozen=True)
class WorkFailed:
    """Event: the task cannot be done."""

    task: Task
    reason: Reason
    detail: str


@dataclass(frozen=True)
class Declined:
    """Event: a task came that this device will not do: nobody vouches for it, or it may not train now."""

    task: Task
    reason: Reason
    detail: str


@dataclass(frozen=True)
class GivenBack:
    """Event: the task at hand has waited for too long for what its device's owner asks for."""

    detail: str


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True)
class EntropyDrawn:
    """Event: fresh randomness for the masks of this task's attempt, and of no other."""

    task: Task
    entropy: bytes = field(repr=False)


@dataclass(frozen=True)
class UpdateMasked:
    """Event: the trained update is masked; `update` names the masked blob, which lies in the store."""

    update: Update


Event = (
    Connected
    | Disconnected
    | SessionRestored
    | Received
    | ChunkArrived
    | ChunkLost
    | BlobChecked
    | BlobsDiscarded
    | ChunkBytesLimited
    | WorkDone
    | WorkFailed
    | Declined
    | GivenBack
    | EntropyDrawn
    | UpdateMasked
    | BypassEvent
    | Tick
)


@dataclass(frozen=True)
class SendMessage:
    """Command: publish a message to the server."""

    message: Message


@dataclass(frozen=True)
class SendChunks:
    """Command: publish chunks of a blob that lies in the store."""

    ref: BlobRef
    first: int
    count: int


@dataclass(frozen=True)
class StartWork:
    """Command: every blob is there; do the task."""

    task: Task


@dataclass(frozen=True)
class StopWork:
    """Command: the task under way is no longer wanted."""


@dataclass(frozen=True)
class Settled:
    """Command (a note): the server has answered the result; `refusal` says why it would not take it."""

    result: Result
    refusal: Refusal | None = None


@dataclass(frozen=True)
class RunEnded:
    """Command (a note): a run that this device took part in is over."""

    end: FederationEnd


@dataclass(frozen=True)
class DrawEntropy:
    """Command: draw 32 bytes of randomness for this task, then say `EntropyDrawn`."""

    task: Task


@dataclass(frozen=True)
class MaskUpdate:
    """Command: the masks are agreed; mask the trained update and forget it bare, then say `UpdateMasked`."""

    update: Update
    membership: Membership


Command = (
    SendMessage
    | SendChunks
    | StartWork
    | StopWork
    | Settled
    | RunEnded
    | WriteChunk
    | VerifyBlob
    | DrawEntropy
    | MaskUpdate
    | BypassCommand
)
