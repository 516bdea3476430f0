"""Events of the round machine, and the commands that it returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edge_client.transport.chunk_transfer import WriteChunk
from edge_server.rounds import event_entry, fleet
from edge_server.security.secure_aggregation.protocol import OpenedSecrets
from schemas.errors import Reason
from schemas.messages import Delivery, FromDevice, FromSite, Message, Refusal, SiteSum, Task, Update
from schemas.security.manifest import Manifest
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, Chunk, ChunkSet
from schemas.values import Feature

RunOutcome = Literal["finished", "failed", "interrupted"]


@dataclass(frozen=True)
class Started:
    """Event: the server has started and loaded its state."""


@dataclass(frozen=True)
class MessageReceived:
    """Event: a message of a device; its topic has proved the sender.

    `have` are the update's chunks that the server stored before it was restarted; `accepted`: the update
    answers no open task, and the journal has it as accepted. `retained`: the broker had stored it, perhaps
    for long.
    """

    message: FromDevice
    have: ChunkSet = NO_CHUNKS
    accepted: bool = False
    retained: bool = False


@dataclass(frozen=True)
class Reconnected:
    """Event: the server has a new connection to the broker; deaths may have been lost with the old one."""


@dataclass(frozen=True)
class ChunkReceived:
    """Event: a chunk that a device sent."""

    device: str
    chunk: Chunk


@dataclass(frozen=True)
class Assignment:
    """One device's task, and the maximum size of its update in bytes."""

    task: Task
    max_bytes: int


@dataclass(frozen=True)
class ExcludedDevice:
    """A device that a planning excludes, and why, in words."""

    device: fleet.Device
    because: str


@dataclass(frozen=True)
class RoundPlanned:
    """Event: the strategy has chosen devices and cut their sub-models.

    `needed` updates close the round (None: all); the other chosen devices are spares. A nonempty `ended`
    says why the run ends with the round before, and `left_out` why devices cannot be chosen.
    """

    attempt: int
    assignments: Mapping[str, Assignment]
    needed: int | None = None
    ended: str = ""
    left_out: str = ""


@dataclass(frozen=True)
class UpdateStored:
    """Event: the update that this device has claimed is in the server's store already."""

    device: str


@dataclass(frozen=True)
class NotInObjectStore:
    """Event: an update that a device claims to have put into the object store cannot be fetched from it.

    `have` are its chunks that are already here.
    """

    device: str
    digest: str
    have: ChunkSet = NO_CHUNKS


@dataclass(frozen=True)
class UpdateChecked:
    """Event: an uploaded update was verified and examined; `reason` says why it is refused."""

    device: str
    digest: str
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True)
class SiteSpoke:
    """Event: a message of a site's gateway about the site itself; its topic has proved the sender."""

    site: str
    message: FromSite


@dataclass(frozen=True)
class SiteChunkReceived:
    """Event: a chunk that a site's gateway sent of a sum."""

    site: str
    chunk: Chunk


@dataclass(frozen=True)
class UpdatesWeighed:
    """Event: the whole weights of the updates that sites are to add; a sum has at most `most_bytes`."""

    round: int
    weights: Mapping[str, int]
    most_bytes: int


@dataclass(frozen=True)
class SumChecked:
    """Event: a site's sum is complete, and is sound unless `detail` says why not.

    `damaged`: its bytes are others than those announced, which a fault of a disk may cause.
    """

    site: str
    digest: str
    detail: str = ""
    damaged: bool = False


@dataclass(frozen=True)
class RoundClosed:
    """Event: the strategy has aggregated the round, and the new model is in place.

    `diverged`: the tested model yields no finite numbers. By device, in words: updates `refused` when
    compared with the others, with the reason, and reported figures that were `exaggerated` and counted less.
    """

    round: int
    diverged: bool = False
    refused: Mapping[str, tuple[Reason, str]] = field(default_factory=dict)
    exaggerated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RollBack:
    """Command: restore the model before the closed round `undone`, then send `RolledBack`.

    `why` says why. Devices whose updates made the model are excluded, but at least `fewest` of the `able`
    ones remain. Plannings up to `attempt` are void, and the strikes in `forgiven`, as (device, round), are
    removed.
    """

    undone: int
    attempt: int
    able: tuple[str, ...]
    fewest: int
    why: str = ""
    forgiven: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class RolledBack:
    """Event: the earlier model is in place and these devices are excluded for some rounds; or it `failed`."""

    command: RollBack
    left_out: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class BlobsLost:
    """Event: these blobs are damaged on the server's disk and cannot be made again."""

    digests: frozenset[str]


@dataclass(frozen=True)
class RepairBlob:
    """Command: a device cannot use the blob of this digest; remake it if damaged, or send `BlobsLost`."""

    digest: str


@dataclass(frozen=True)
class Misbehaved:
    """Event: a device sent a malformed message, or one in another device's name."""

    device: str
    reason: Reason


@dataclass(frozen=True)
class LabelsChanged:
    """Event: the operator's labels are now these, by device."""

    labels: fleet.OwnLabels


@dataclass(frozen=True)
class StopRequested:
    """Event: the user stops the run."""


@dataclass(frozen=True)
class ServerFailed:
    """Event: the server itself cannot continue."""

    detail: str


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


Event = (
    Started
    | Reconnected
    | MessageReceived
    | ChunkReceived
    | RoundPlanned
    | UpdateStored
    | NotInObjectStore
    | UpdateChecked
    | SiteSpoke
    | SiteChunkReceived
    | UpdatesWeighed
    | SumChecked
    | RoundClosed
    | RolledBack
    | BlobsLost
    | Misbehaved
    | LabelsChanged
    | StopRequested
    | ServerFailed
    | Tick
)


@dataclass(frozen=True)
class Announce:
    """Command: publish to all devices, retained."""

    message: Message


@dataclass(frozen=True)
class Send:
    """Command: publish to one device, with `to_sign` signed if there is a key."""

    device: str
    message: Message
    to_sign: Manifest | None = None


def send_refusal(federation: str, device: str, reason: Reason, detail: str = "", **named: Any) -> Send:
    """Refuse what the device has sent; `named` are the further fields of `Refusal`."""
    refusal = Refusal(federation=federation, device=device, reason=reason, detail=detail[:500], **named)
    return Send(device, refusal)


@dataclass(frozen=True)
class SendChunks:
    """Command: publish chunks of a blob to one device; `pushed` ones were not requested."""

    device: str
    ref: BlobRef
    first: int
    count: int
    pushed: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class SendToSite:
    """Command: publish to a site's gateway."""

    site: str
    message: Message


@dataclass(frozen=True)
class SendTerms:
    """Command: tell a site's gateway the terms of the run."""

    site: str


@dataclass(frozen=True)
class CheckSum:
    """Command: all chunks of a site's sum are here; verify and check it, then send `SumChecked`."""

    site: str
    ref: BlobRef


@dataclass(frozen=True)
class Publish:
    """Command: publish chunks of an attempt's blob on a shared topic, at QoS 0, to these `listeners`."""

    channel: int
    ref: BlobRef
    first: int
    count: int
    attempt: int = 0
    listeners: tuple[str, ...] = ()


@dataclass(frozen=True)
class WriteUpdateChunk:
    """Command: write a chunk of an update to the store."""

    device: str
    chunk: WriteChunk


@dataclass(frozen=True)
class CheckUpdate:
    """Command: all chunks are here; verify, examine and sync the update, then send `UpdateChecked`.

    `segments` are those required of a masked update.
    """

    device: str
    update: Update
    segments: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlanRound:
    """Command: choose among these devices and make their tasks, then send `RoundPlanned`.

    `attempt` numbers the plannings of the run; `retry` counts this round's earlier ones. `over_select` is
    the factor of devices chosen beyond those needed; `wanted` overrides the number if others are at work.
    `keep` are the digests of blobs in use. Chosen devices take the `places` of devices that gave their tasks
    back. For explanations: `left_out` are devices that cannot be chosen, `known` counts all devices.
    `classes` are the names of the model's classes, `columns` are its inputs.
    """

    round: int
    attempt: int
    devices: tuple[fleet.Device, ...]
    retry: int = 0
    deliver: bool = False
    over_select: float = 1.0
    wanted: int | None = None
    keep: frozenset[str] = frozenset()
    places: tuple[str, ...] = ()
    left_out: tuple[ExcludedDevice, ...] = ()
    known: int = 0
    classes: tuple[str, ...] = ()
    columns: tuple[Feature, ...] = ()


@dataclass(frozen=True)
class CloseRound:
    """Command: aggregate these updates, then send `RoundClosed`; `dropped` devices did not finish in time.

    `rejected` has the reason and detail of each refusal. `staleness`: per update, rounds since its task began
    (0 in synchronous rounds). Masked updates are summed with the secrets in `opened`. `sums` has, by site,
    the sum of the updates that lie there.
    """

    round: int
    updates: Mapping[str, Update]
    selected: tuple[str, ...]
    dropped: tuple[str, ...]
    rejected: Mapping[str, tuple[Reason, str]]
    staleness: Mapping[str, int] = field(default_factory=dict)
    opened: OpenedSecrets | None = None
    sums: Mapping[str, SiteSum] = field(default_factory=dict)


@dataclass(frozen=True)
class WeighUpdates:
    """Command: weigh the updates of a round that lie at sites, then send `UpdatesWeighed`."""

    close: CloseRound


@dataclass(frozen=True)
class Note:
    """Command: log something about a device or the round, and add it to the run's event list.

    A note with a `reason` counts as a refusal, of kind REFUSAL unless `kind` says otherwise. `what` is a
    fixed phrase; variable or foreign text belongs in `detail`, as the list has one row, with a count, per
    minute, kind, device and `what`. `routine` notes are not logged as warnings.
    """

    what: str
    device: str | None = None
    reason: Reason | None = None
    detail: str = ""
    kind: event_entry.EventKind | None = None
    routine: bool = False

    @property
    def words(self) -> str:
        words = [self.device, self.what, f"({self.reason})" if self.reason else None, self.detail]
        return " ".join(word for word in words if word)

    def event(self, at: float) -> event_entry.RunEvent:
        """The note as an entry of the event list, at `at` seconds since 1970."""
        usual = event_entry.EventKind.REFUSAL if self.reason is not None else event_entry.EventKind.NOTICE
        reason = str(self.reason or "")
        return event_entry.RunEvent(
            at=at,
            last_at=at,
            kind=self.kind or usual,
            text=": ".join(word for word in (self.what, self.detail) if word),
            subject=" ".join(word for word in (self.what, reason) if word),
            device=self.device or "",
            reason=reason,
        )


@dataclass(frozen=True)
class RecordStrike:
    """Command: record a strike against a device permanently."""

    device: str
    round: int
    reason: Reason


@dataclass(frozen=True)
class RecordDelivery:
    """Command (a note): a device has installed its compact model."""

    delivery: Delivery


@dataclass(frozen=True)
class EndRun:
    """Command: the run is over; `outcome` is that of `FederationEnd`."""

    outcome: RunOutcome
    detail: str = ""


Command = (
    Announce
    | Send
    | SendChunks
    | SendToSite
    | SendTerms
    | Publish
    | WriteUpdateChunk
    | WriteChunk
    | CheckUpdate
    | CheckSum
    | PlanRound
    | WeighUpdates
    | CloseRound
    | RollBack
    | RepairBlob
    | Note
    | RecordStrike
    | RecordDelivery
    | EndRun
)
