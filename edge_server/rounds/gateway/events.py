"""Events of a gateway's machine, and the commands that it returns.

"Above" is the server, or the gateway of the site around this one; "below" are the site's devices, and the
gateways of sites within it. What the server's machine has, too, is in `edge_server.rounds.events`.
"""

from dataclasses import dataclass

from edge_client.transport.chunk_transfer import VerifyBlob, WriteChunk
from edge_server.rounds import events
from schemas import messages
from schemas.messages.remote import DiagnosticAnswer
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, Chunk, ChunkSet


@dataclass(frozen=True)
class LinkedAbove:
    """Event: the connection to what is above stands, for the `session`-th time."""

    session: int


@dataclass(frozen=True)
class CutAbove:
    """Event: it is lost."""


@dataclass(frozen=True)
class MessageForDevice:
    """Event: a message from above to one of the site's devices."""

    device: str
    message: messages.FromServer | messages.DiagnosticRequest


@dataclass(frozen=True)
class MessageForSite:
    """Event: a message from above to the gateway itself."""

    message: messages.ToSite


@dataclass(frozen=True)
class Announced:
    """Event: the announcement of the federation has changed."""

    message: messages.RoundAnnouncement | messages.FederationEnd


@dataclass(frozen=True)
class DeviceSpoke:
    """Event: a message of a device.

    Of an update `have` are the chunks that are here, and `most_bytes` the most that it may have.
    """

    message: messages.FromDevice | DiagnosticAnswer
    have: ChunkSet = NO_CHUNKS
    most_bytes: int = 0


@dataclass(frozen=True)
class ChunkFromAbove:
    """Event: a chunk of a blob that was requested for a device."""

    chunk: Chunk


@dataclass(frozen=True)
class BlobVerified:
    """Event: a blob from above is complete; `sound` says whether its bytes are those of its digest."""

    digest: str
    sound: bool


@dataclass(frozen=True)
class UpdateExamined:
    """Event: an update was verified, examined and recorded; it has its receipt."""

    update: messages.Update


@dataclass(frozen=True)
class SumMade:
    """Event: the requested sum is a blob; or the updates of the devices in `lost` are not here."""

    request: messages.SumRequest
    ref: BlobRef | None = None
    lost: tuple[str, ...] = ()


Event = (
    LinkedAbove
    | CutAbove
    | MessageForDevice
    | MessageForSite
    | Announced
    | DeviceSpoke
    | events.SiteSpoke
    | ChunkFromAbove
    | events.ChunkReceived
    | events.SiteChunkReceived
    | BlobVerified
    | events.SumChecked
    | UpdateExamined
    | SumMade
    | events.Tick
)


@dataclass(frozen=True)
class SendAbove:
    """Command: publish above, in the name of a device, or of the site itself without one."""

    message: messages.Message
    device: str = ""


@dataclass(frozen=True)
class SendChunksAbove:
    """Command: publish chunks of a blob above, in the name of a device or of the site itself."""

    ref: BlobRef
    first: int
    count: int
    device: str = ""


@dataclass(frozen=True)
class SendChunksBelow:
    """Command: publish chunks of a blob to a device."""

    device: str
    ref: BlobRef
    index: int


@dataclass(frozen=True)
class PassChunkOn:
    """Command: publish a device's chunk above as it is."""

    device: str
    chunk: Chunk


@dataclass(frozen=True)
class RememberTask:
    """Command: record the task of a device, so that a restarted gateway knows it."""

    device: str
    task: messages.Task


@dataclass(frozen=True)
class ExamineUpdate:
    """Command: verify, examine and record an update, then send `UpdateExamined`."""

    update: messages.Update
    task: messages.TrainTask


@dataclass(frozen=True)
class RecordRefused:
    """Command: record an update that was refused before it was here."""

    update: messages.Update


@dataclass(frozen=True)
class MakeSum:
    """Command: add these updates and the sums of sites within this one, then send `SumMade`."""

    request: messages.SumRequest
    updates: tuple[messages.Update, ...]
    parts: tuple[messages.SiteSum, ...] = ()


@dataclass(frozen=True)
class Forget:
    """Command: forget the updates of rounds before `oldest`, and all of other runs, and unused blobs."""

    run: str
    oldest: int


Command = (
    SendAbove
    | events.Send
    | events.SendToSite
    | events.Announce
    | SendChunksAbove
    | SendChunksBelow
    | PassChunkOn
    | WriteChunk
    | VerifyBlob
    | events.CheckSum
    | RememberTask
    | ExamineUpdate
    | RecordRefused
    | MakeSum
    | Forget
    | events.Note
)
