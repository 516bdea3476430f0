"""Blobs that are published once for all devices that need them: in pieces, at a pace. Pure values.

Devices say how far they have heard, and none may be more than `AHEAD_BYTES` behind what is published, so that
a slow one makes no queue in the broker. One that tells nothing for `STALL_S` while the others wait for it is
waited for no longer: it is to ask for the rest, as is whoever came too late. `broadcasting` leads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from schemas.messages import Task
from schemas.tensors.blobs import BlobRef

AHEAD_BYTES = 8 * 1024 * 1024
"""How much may be published that some device has not said it has heard: four of its reports."""
PIECE_BYTES = 2 * 1024 * 1024
STALL_S = 4.0
QUIET_S, LATEST_S = 2.0, 5.0
"""A broadcast begins without who has not answered after a quiet time, and after so long in any case."""

Channels = frozenset[int]


@dataclass(frozen=True)
class ChunkRange:
    """Adjacent chunks of one blob, published on one shared topic one after the other."""

    channel: int
    ref: BlobRef
    first: int
    count: int

    @property
    def size(self) -> int:
        """Bytes, without the frames."""
        return sum(self.ref.chunk_size(index) for index in range(self.first, self.first + self.count))

    def part(self, index: int) -> int:
        """Bytes up to and with chunk `index`."""
        return sum(self.ref.chunk_size(n) for n in range(self.first, index + 1))


@dataclass(frozen=True)
class Follower:
    """A device that listens: `heard` bytes of its channels, reported at `heard_at`."""

    channels: Channels
    heard: int
    heard_at: float


@dataclass(frozen=True)
class Broadcast:
    """The pieces of one planning, of which those before `next` are published.

    `asked_at` and `quiet_since` are when the devices were asked and when the last of them answered; `sums`
    are the bytes before each piece that a device with such channels hears. `awaits` is one of those who were
    behind: while it still is, nobody need look at the others.
    """

    run: str
    attempt: int
    pieces: tuple[ChunkRange, ...]
    asked_at: float
    quiet_since: float
    begun: bool = False
    next: int = 0
    sent_at: float = 0.0
    awaits: str = ""
    followers: Mapping[str, Follower] = field(default_factory=dict)
    sums: Mapping[Channels, tuple[int, ...]] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether everything is published."""
        return self.begun and self.next == len(self.pieces)

    def may_begin(self, now: float, *, answered: bool) -> bool:
        """Whether those who listen by now are all that are waited for."""
        quiet = now >= self.quiet_since + QUIET_S or now >= self.asked_at + LATEST_S
        return answered or quiet


def plan_broadcast(tasks: Iterable[Task], now: float) -> Broadcast | None:
    """What the tasks of a planning have in common; None where that is nothing."""
    blobs: dict[int, BlobRef] = {}
    told: Task | None = None
    for task in tasks:
        for name, channel in task.channels.items():
            blobs[channel], told = task.blobs[name], task
    if told is None:
        return None
    pieces = tuple(piece for channel in sorted(blobs) for piece in _pieces(channel, blobs[channel]))
    return Broadcast(told.run, told.attempt, pieces, asked_at=now, quiet_since=now)


def _pieces(channel: int, ref: BlobRef) -> Iterator[ChunkRange]:
    step = max(1, PIECE_BYTES // ref.chunk_bytes)
    for first in range(0, ref.chunks, step):
        yield ChunkRange(channel, ref, first, min(step, ref.chunks - first))


def add_follower(broadcast: Broadcast, device: str, listens: Iterable[int], now: float) -> Broadcast:
    """A device listens from now on; whatever was published before it has not heard."""
    channels = frozenset(listens)
    sums = broadcast.sums
    if channels not in sums:
        sizes = (piece.size if piece.channel in channels else 0 for piece in broadcast.pieces)
        sums = {**sums, channels: tuple(accumulate(sizes, initial=0))}
    follower = Follower(channels, sums[channels][broadcast.next], now)
    followers = {**broadcast.followers, device: follower}
    return replace(broadcast, followers=followers, sums=sums, quiet_since=now)


def record_progress(broadcast: Broadcast, device: str, digest: str, index: int, now: float) -> Broadcast:
    """A device has heard up to that chunk; one that says again what it has said is as good as silent."""
    follower = broadcast.followers.get(device)
    if follower is None:
        return broadcast
    for number, piece in enumerate(broadcast.pieces):
        if piece.ref.digest == digest and piece.first <= index < piece.first + piece.count:
            told = broadcast.sums[follower.channels][number] + piece.part(index)
            if told <= follower.heard:
                return broadcast
            further = replace(follower, heard=told, heard_at=now)
            return replace(broadcast, followers={**broadcast.followers, device: further})
    return broadcast


def drop_followers(broadcast: Broadcast, devices: Iterable[str]) -> Broadcast:
    """These are waited for no longer."""
    gone = frozenset(devices)
    followers = {name: one for name, one in broadcast.followers.items() if name not in gone}
    return replace(broadcast, followers=followers)


def begin(broadcast: Broadcast, now: float) -> Broadcast:
    """Begin, with what anyone listens to."""
    wanted = {channel for one in broadcast.followers.values() for channel in one.channels}
    pieces = tuple(piece for piece in broadcast.pieces if piece.channel in wanted)
    begun = replace(broadcast, begun=True, pieces=pieces, sums={}, followers={}, sent_at=now)
    for device, one in broadcast.followers.items():
        begun = add_follower(begun, device, one.channels, now)
    return begun


def lagging_followers(broadcast: Broadcast) -> tuple[str, ...]:
    """The devices that have not heard enough for the next piece to be published."""
    if broadcast.over:
        return ()
    until = {channels: sums[broadcast.next + 1] - AHEAD_BYTES for channels, sums in broadcast.sums.items()}
    channel = broadcast.pieces[broadcast.next].channel
    return tuple(
        name
        for name, one in broadcast.followers.items()
        if channel in one.channels and one.heard < until[one.channels]
    )


def is_held_up(broadcast: Broadcast, now: float) -> bool:
    """Whether the one that was waited for is still behind, and not for too long."""
    one = broadcast.followers.get(broadcast.awaits)
    if one is None or broadcast.over:
        return False
    until = broadcast.sums[one.channels][broadcast.next + 1] - AHEAD_BYTES
    channel = broadcast.pieces[broadcast.next].channel
    return (
        channel in one.channels
        and one.heard < until
        and not stalled_followers(broadcast, [broadcast.awaits], now)
    )


def stalled_followers(broadcast: Broadcast, names: Iterable[str], now: float) -> tuple[str, ...]:
    """Those of the devices that have told nothing for too long."""
    quiet = {name: max(broadcast.followers[name].heard_at, broadcast.sent_at) for name in names}
    return tuple(name for name, since in quiet.items() if now >= since + STALL_S)


def publish_next(broadcast: Broadcast, now: float) -> tuple[Broadcast, ChunkRange]:
    """The next piece, and what is left."""
    return replace(broadcast, next=broadcast.next + 1, sent_at=now), broadcast.pieces[broadcast.next]
