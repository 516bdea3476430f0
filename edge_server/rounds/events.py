"""What may happen to a federation (events) and what it wants done (commands)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_client.transport.chunk_transfer import WriteChunk
from edge_server.rounds.event_entry import EventKind, RunEvent
from edge_server.rounds.fleet import Device
from edge_server.security.secure_aggregation.unmasking import OpenedSecrets
from schemas.messages import Delivery, FromDevice, Message, Task, Update
from schemas.security.manifest import Manifest
from schemas.tensors.blobs import BlobRef, Chunk
from schemas.values import Reason


@dataclass(frozen=True)
class Started:
    """Event: the server is up and its own state is loaded."""


@dataclass(frozen=True)
class MessageReceived:
    """Event: a message of a device; its topic has already proved who sent it.

    `have` are the chunks of an update that lie in the server's store since before it was restarted, as bits.
    """

    message: FromDevice
    have: int = 0


@dataclass(frozen=True)
class ChunkReceived:
    """Event: a chunk that a device sent."""

    device: str
    chunk: Chunk


@dataclass(frozen=True)
class Assignment:
    """One device's task, and the most bytes that its answer may have."""

    task: Task
    max_bytes: int


@dataclass(frozen=True)
class ExcludedDevice:
    """A device that is not among those of a planning, and why, in words."""

    device: Device
    because: str


@dataclass(frozen=True)
class RoundPlanned:
    """Event: the strategy has chosen devices and cut their sub-models.

    `needed` updates close the round (None: all of them); the rest of the chosen are there to be spared.
    `ended` says why there is to be no such round and the run is done with the one before.
    """

    attempt: int
    assignments: Mapping[str, Assignment]
    needed: int | None = None
    ended: str = ""


@dataclass(frozen=True)
class UpdateStored:
    """Event: the update that this device has claimed lies in the server's store already."""

    device: str


@dataclass(frozen=True)
class NotInObjectStore:
    """Event: the update that a device says to have put into the store is not to be had from there.

    `have` are the chunks of it that came all the same, as bits.
    """

    device: str
    digest: str
    have: int = 0


@dataclass(frozen=True)
class UpdateChecked:
    """Event: an uploaded update was verified and examined; `reason` says why it may not count."""

    device: str
    digest: str
    reason: Reason | None = None
    detail: str = ""


@dataclass(frozen=True)
class RoundClosed:
    """Event: the strategy has aggregated the round, and the new model is in place.

    It has `diverged` where the model, tested by the server, computes no numbers. Beside all the others some
    updates were `refused`, and some figures were `exaggerated` and counted less: in words, by device.
    """

    round: int
    diverged: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    exaggerated: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RollBack:
    """Command: give up the model of the last closed round for the one before it, then say `RolledBack`.

    `undone` is that round and `why` it is given up. Of the `able` devices at least `fewest` stay when those
    are left out whose updates made the model. Plannings up to `attempt` are void, and what counted against
    devices in the `forgiven` rounds, as (device, round), counts no more.
    """

    undone: int
    attempt: int
    able: tuple[str, ...]
    fewest: int
    why: str = ""
    forgiven: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class RolledBack:
    """Event: the earlier model is in place, without these devices for some rounds; or why it cannot be."""

    command: RollBack
    left_out: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class BlobsLost:
    """Event: these blobs are damaged on the server's disk and cannot be made anew."""

    digests: frozenset[str]


@dataclass(frozen=True)
class RepairBlob:
    """Command: a device cannot use the blob of this digest.

    Make it anew if it is damaged, then say `BlobsLost`.
    """

    digest: str


@dataclass(frozen=True)
class Misbehaved:
    """Event: what a device sent was no message, or not its own."""

    device: str
    reason: Reason


@dataclass(frozen=True)
class StopRequested:
    """Event: the user asked for an end."""


@dataclass(frozen=True)
class ServerFailed:
    """Event: the server itself cannot go on."""

    detail: str


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


Event = (
    Started
    | MessageReceived
    | ChunkReceived
    | RoundPlanned
    | UpdateStored
    | NotInObjectStore
    | UpdateChecked
    | RoundClosed
    | RolledBack
    | BlobsLost
    | Misbehaved
    | StopRequested
    | ServerFailed
    | Tick
)


@dataclass(frozen=True)
class Announce:
    """Command: publish to all, retained."""

    message: Message


@dataclass(frozen=True)
class Send:
    """Command: publish to one device, and along with it the signature over `to_sign`, if there is a key."""

    device: str
    message: Message
    to_sign: Manifest | None = None


@dataclass(frozen=True)
class SendChunks:
    """Command: publish chunks of a blob to one device."""

    device: str
    ref: BlobRef
    first: int
    count: int


@dataclass(frozen=True)
class Publish:
    """Command: publish chunks of a blob of that attempt on a shared topic, at QoS 0.

    The `listeners` are there and hear it.
    """

    channel: int
    ref: BlobRef
    first: int
    count: int
    attempt: int = 0
    listeners: tuple[str, ...] = ()


@dataclass(frozen=True)
class WriteUpdateChunk:
    """Command: put an update's chunk in its place."""

    device: str
    chunk: WriteChunk


@dataclass(frozen=True)
class CheckUpdate:
    """Command: every chunk is there; verify, examine and sync the update, then say `UpdateChecked`.

    `segments` are those that a masked update must have.
    """

    device: str
    update: Update
    segments: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlanRound:
    """Command: choose among these devices and make their tasks, then say `RoundPlanned`.

    `attempt` numbers the plannings of the run; `retry` counts those of this round before. `over_select`
    times as many devices shall be chosen as the round needs; where others are at work `wanted` says how many.
    `keep` are the digests of blobs that are still in use. Whoever is chosen takes one of the `places` of
    devices that gave their tasks back, if there are any. For those who ask why: `left_out` are devices that
    cannot be chosen, and so many are `known` in all. `classes` are the names of the model's classes.
    """

    round: int
    attempt: int
    devices: tuple[Device, ...]
    retry: int = 0
    deliver: bool = False
    over_select: float = 1.0
    wanted: int | None = None
    keep: frozenset[str] = frozenset()
    places: tuple[str, ...] = ()
    left_out: tuple[ExcludedDevice, ...] = ()
    known: int = 0
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CloseRound:
    """Command: aggregate these updates, then say `RoundClosed`; `dropped` did not finish in time.

    `staleness` is, per update, how many rounds ago its task was begun (0 in synchronous rounds). Of masked
    updates only the sum counts, by what was `opened`.
    """

    round: int
    updates: Mapping[str, Update]
    selected: tuple[str, ...]
    dropped: tuple[str, ...]
    rejected: Mapping[str, Reason]
    staleness: Mapping[str, int] = field(default_factory=dict)
    opened: OpenedSecrets | None = None


@dataclass(frozen=True)
class Note:
    """Command: log something about a device or the round, and put it into the run's event list.

    One with a `reason` is counted as a refusal, and is of that `kind` unless another is named. `what` says
    what happened in few words of ours; what varies, or what others say, belongs in `detail`: the list has one
    row, with a count, for each minute, kind, device and `what`. What is `routine` is not shown as a warning.
    """

    what: str
    device: str | None = None
    reason: Reason | None = None
    detail: str = ""
    kind: EventKind | None = None
    routine: bool = False

    @property
    def words(self) -> str:
        """The note as a line."""
        words = [self.device, self.what, f"({self.reason})" if self.reason else None, self.detail]
        return " ".join(word for word in words if word)

    def event(self, at: float) -> RunEvent:
        """The note as an entry of the event list, at `at` seconds since 1970."""
        usual = EventKind.REFUSAL if self.reason is not None else EventKind.NOTICE
        reason = str(self.reason or "")
        return RunEvent(
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
    """Command: keep for good that this counts against a device."""

    device: str
    round: int
    reason: Reason


@dataclass(frozen=True)
class RecordDelivery:
    """Command (a note): a device has its compact model in place."""

    delivery: Delivery


@dataclass(frozen=True)
class EndRun:
    """Command: the run is over; `outcome` is that of `FederationEnd`."""

    outcome: str
    detail: str = ""


Command = (
    Announce
    | Send
    | SendChunks
    | Publish
    | WriteUpdateChunk
    | CheckUpdate
    | PlanRound
    | CloseRound
    | RollBack
    | RepairBlob
    | Note
    | RecordStrike
    | RecordDelivery
    | EndRun
)
