"""A broadcast: blobs published once for all devices that need them, in chunk ranges, at a pace. Pure values.

Followers report their progress, and publishing stays at most `AHEAD_BYTES` ahead of each, so that a slow
device builds up no queue in the broker. A device that reports nothing for `STALL_S` while the others wait
for it is dropped: like a device that joined late, it requests the rest. `handlers` drives the broadcast.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from schemas.messages import Task
from schemas.tensors.chunks import BlobRef

AHEAD_BYTES = 8 * 1024 * 1024  # Bytes published beyond the slowest follower's reported progress: four reports
RANGE_BYTES = 2 * 1024 * 1024
STALL_S = 4.0
QUIET_S, LATEST_S = 2.0, 5.0
"""A broadcast begins after this many seconds without a further answer, or since the tasks were offered."""

Channels = frozenset[int]


@dataclass(frozen=True)
class ChunkRange:
    """Adjacent chunks of one blob, published in order on one shared topic."""

    channel: int
    ref: BlobRef
    first: int
    count: int

    @property
    def size(self) -> int:
        """Bytes, without chunk headers."""
        return sum(self.ref.chunk_size(index) for index in range(self.first, self.first + self.count))

    def size_through(self, index: int) -> int:
        """Bytes up to and including chunk `index`."""
        return sum(self.ref.chunk_size(n) for n in range(self.first, index + 1))


@dataclass(frozen=True)
class Follower:
    """A listening device: it has `received` bytes of its channels, as it last said at `reported_at`."""

    channels: Channels
    received: int
    reported_at: float


@dataclass(frozen=True)
class Broadcast:
    """The chunk ranges of one planning; those before `next` are published.

    `asked_at` and `quiet_since` are when the devices were asked and when the last of them answered. `sums`
    holds, for a set of channels, the bytes before each range. `awaits` is a lagging follower: while it lags,
    the others need not be checked.
    """

    run: str
    attempt: int
    ranges: tuple[ChunkRange, ...]
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
        return self.begun and self.next == len(self.ranges)

    def may_begin(self, now: float, *, answered: bool) -> bool:
        """Whether to start with the followers so far."""
        quiet = now >= self.quiet_since + QUIET_S or now >= self.asked_at + LATEST_S
        return answered or quiet


def plan_broadcast(tasks: Iterable[Task], now: float) -> Broadcast | None:
    """The broadcast of the blobs that the tasks of a planning share; None if they share none."""
    blobs: dict[int, BlobRef] = {}
    shared: Task | None = None
    for task in tasks:
        for name, channel in task.channels.items():
            blobs[channel], shared = task.blobs[name], task
    if shared is None:
        return None
    ranges = tuple(part for channel in sorted(blobs) for part in _split(channel, blobs[channel]))
    return Broadcast(shared.run, shared.attempt, ranges, asked_at=now, quiet_since=now)


def _split(channel: int, ref: BlobRef) -> Iterator[ChunkRange]:
    step = max(1, RANGE_BYTES // ref.chunk_bytes)
    for first in range(0, ref.chunks, step):
        yield ChunkRange(channel, ref, first, min(step, ref.chunks - first))


def add_follower(broadcast: Broadcast, device: str, listens: Iterable[int], now: float) -> Broadcast:
    """A device listens from now on; it has missed what is published already."""
    channels = frozenset(listens)
    sums = broadcast.sums
    if channels not in sums:
        sizes = (part.size if part.channel in channels else 0 for part in broadcast.ranges)
        sums = {**sums, channels: tuple(accumulate(sizes, initial=0))}
    follower = Follower(channels, sums[channels][broadcast.next], now)
    followers = {**broadcast.followers, device: follower}
    return replace(broadcast, followers=followers, sums=sums, quiet_since=now)


def record_progress(broadcast: Broadcast, device: str, digest: str, index: int, now: float) -> Broadcast:
    """A device has received up to that chunk; a report without progress does not count as a report."""
    follower = broadcast.followers.get(device)
    if follower is None:
        return broadcast
    for number, part in enumerate(broadcast.ranges):
        if part.ref.digest == digest and part.first <= index < part.first + part.count:
            received = broadcast.sums[follower.channels][number] + part.size_through(index)
            if received <= follower.received:
                return broadcast
            further = replace(follower, received=received, reported_at=now)
            return replace(broadcast, followers={**broadcast.followers, device: further})
    return broadcast


def drop_followers(broadcast: Broadcast, devices: Iterable[str]) -> Broadcast:
    gone = frozenset(devices)
    followers = {name: follower for name, follower in broadcast.followers.items() if name not in gone}
    return replace(broadcast, followers=followers)


def begin(broadcast: Broadcast, now: float) -> Broadcast:
    wanted = {channel for follower in broadcast.followers.values() for channel in follower.channels}
    ranges = tuple(part for part in broadcast.ranges if part.channel in wanted)
    begun = replace(broadcast, begun=True, ranges=ranges, sums={}, followers={}, sent_at=now)
    for device, follower in broadcast.followers.items():
        begun = add_follower(begun, device, follower.channels, now)
    return begun


def lagging_followers(broadcast: Broadcast) -> tuple[str, ...]:
    """The devices that are too far behind for the next range to be published."""
    if broadcast.over:
        return ()
    until = {channels: sums[broadcast.next + 1] - AHEAD_BYTES for channels, sums in broadcast.sums.items()}
    channel = broadcast.ranges[broadcast.next].channel
    return tuple(
        name
        for name, follower in broadcast.followers.items()
        if channel in follower.channels and follower.received < until[follower.channels]
    )


def is_held_up(broadcast: Broadcast, now: float) -> bool:
    """Whether the awaited follower still lags, and has not stalled."""
    follower = broadcast.followers.get(broadcast.awaits)
    if follower is None or broadcast.over:
        return False
    until = broadcast.sums[follower.channels][broadcast.next + 1] - AHEAD_BYTES
    channel = broadcast.ranges[broadcast.next].channel
    return (
        channel in follower.channels
        and follower.received < until
        and not stalled_followers(broadcast, [broadcast.awaits], now)
    )


def stalled_followers(broadcast: Broadcast, names: Iterable[str], now: float) -> tuple[str, ...]:
    """Those of the devices that have reported no progress for `STALL_S`."""
    quiet = {name: max(broadcast.followers[name].reported_at, broadcast.sent_at) for name in names}
    return tuple(name for name, since in quiet.items() if now >= since + STALL_S)


def publish_next(broadcast: Broadcast, now: float) -> tuple[Broadcast, ChunkRange]:
    return replace(broadcast, next=broadcast.next + 1, sent_at=now), broadcast.ranges[broadcast.next]
