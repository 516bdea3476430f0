"""Receiving one blob in pulled, resumable chunks: a pure state machine, the same in both directions.

The receiver requests windows of missing chunks and repeats a request that gets no answer; the sender only
answers. A lost, doubled or reordered chunk therefore costs at most one request.
"""

from dataclasses import dataclass, field, replace

from schemas.errors import PeerError
from schemas.messages.blobs import BlobRequest
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, Chunk, ChunkSet

WINDOW = 16  # Largest number of chunks requested and not yet received: 4 MB of 256 kB chunks
PATIENCE_S = 2.0
MAX_PATIENCE_S = 30.0
FAR_PATIENCE_S = 30.0  # Least patience on a slow link, on which a chunk of 256 kB may take so long: 70 kbit/s
BROADCAST_PATIENCE_S = 6.0
"""Longest silence in seconds before a blob that is published to several receivers is requested."""
NOTE_EVERY_S = 0.5
MAX_RUNS = 4096
"""Runs of chunks of one blob: others that nobody has requested are taken only where they touch one."""


@dataclass(frozen=True)
class RequestChunks:
    """Command: request chunks `first` to `first + count - 1` of the blob."""

    ref: BlobRef
    first: int
    count: int

    def request(self, federation: str, device: str) -> BlobRequest:
        """The message for this command, from or to this device."""
        return BlobRequest(
            federation=federation, device=device, digest=self.ref.digest, first=self.first, count=self.count
        )


@dataclass(frozen=True)
class WriteChunk:
    """Command: write these bytes to their place in the blob's part file."""

    ref: BlobRef
    index: int
    data: bytes | memoryview
    crc: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class VerifyBlob:
    """Command: all chunks have arrived; check size and sha256, then store the blob."""

    ref: BlobRef


TransferCommand = RequestChunks | WriteChunk | VerifyBlob


@dataclass(frozen=True)
class Receiving:
    """A blob in transfer. `have` and `asked` are chunk numbers; `retry_at` is in seconds.

    An `expected` blob is being published to several receivers and is not requested yet. Requests are not
    repeated within `least` seconds.
    """

    ref: BlobRef
    have: ChunkSet = NO_CHUNKS
    asked: ChunkSet = NO_CHUNKS
    retry_at: float = 0.0
    patience: float = PATIENCE_S
    expected: bool = False
    least: float = PATIENCE_S

    @property
    def complete(self) -> bool:
        return self.have == ChunkSet.first(self.ref.chunks)

    def silent(self, now: float) -> bool:
        """Whether the longest patience has run out without a chunk."""
        return not self.complete and self.patience >= MAX_PATIENCE_S and now >= self.retry_at


Step = tuple[Receiving, list[TransferCommand]]


def start_transfer(
    ref: BlobRef,
    now: float,
    have: ChunkSet = NO_CHUNKS,
    *,
    pushed: bool | None = None,
    expected: bool = False,
    least: float = PATIENCE_S,
) -> Step:
    """Begin to receive `ref` and request the chunks that are not in `have`.

    A `pushed` blob (by default an inline one) is sent without a request, and an `expected` one will be
    published: both are requested only when they are late.
    """
    present = have.below(ref.chunks)
    comes = (ref.inline if pushed is None else pushed) and not expected
    asked = ChunkSet.first(1) if comes and 0 not in present else NO_CHUNKS
    late_at = now + (BROADCAST_PATIENCE_S if expected else least)
    receiving = Receiving(
        ref, have=present, asked=asked, retry_at=late_at, patience=least, expected=expected, least=least
    )
    return (receiving, [VerifyBlob(ref)]) if receiving.complete else _ask(receiving, now)


def accept(receiving: Receiving, chunk: Chunk, now: float) -> Step:
    """Accept one chunk; raises `PeerError` if it does not belong to the blob."""
    ref = receiving.ref
    if not ref.digest.startswith(chunk.prefix) or chunk.index >= ref.chunks:
        raise PeerError(f"chunk {chunk.index} of {chunk.prefix} does not belong to blob {ref.digest[:16]}")
    if len(chunk.data) != ref.chunk_size(chunk.index):
        raise PeerError(f"chunk {chunk.index} of {chunk.prefix} has {len(chunk.data)} bytes")
    if receiving.expected:
        # Published chunks arrive in order, so the last one ends the publication.
        over = chunk.index == ref.chunks - 1
        receiving = replace(still_coming(receiving, now), expected=not over)
    if chunk.index in receiving.have:
        return (receiving, []) if receiving.complete else _ask(receiving, now)
    if _scatters(receiving, chunk.index):
        return receiving, []
    taken = replace(
        receiving,
        have=receiving.have.adding(chunk.index),
        asked=receiving.asked.without(chunk.index),
        patience=receiving.least,
        retry_at=receiving.retry_at if receiving.expected else now + receiving.least,
    )
    commands: list[TransferCommand] = [WriteChunk(ref, chunk.index, chunk.data, chunk.crc)]
    if taken.complete:
        return taken, [*commands, VerifyBlob(ref)]
    asking, more = _ask(taken, now)
    return asking, commands + more


def still_coming(receiving: Receiving, now: float) -> Receiving:
    """Extend the wait for an expected blob, since the shared topic is active.

    The time is updated twice a second at most, because every chunk concerns all blobs that wait.
    """
    late_at = now + BROADCAST_PATIENCE_S
    if not receiving.expected or late_at < receiving.retry_at + NOTE_EVERY_S:
        return receiving
    return replace(receiving, retry_at=late_at)


def on_lost_chunk(receiving: Receiving, index: int, now: float) -> Receiving:
    """Request a chunk that could not be stored (disk full) again after the longest patience.

    Until then it counts as requested, so that the window does not move on.
    """
    return replace(
        receiving,
        have=receiving.have.without(index),
        asked=receiving.asked.adding(index),
        patience=MAX_PATIENCE_S,
        retry_at=now + MAX_PATIENCE_S,
    )


def tick(receiving: Receiving, now: float) -> Step:
    """Request missing chunks again once patience has run out; patience doubles up to `MAX_PATIENCE_S`."""
    if receiving.complete or now < receiving.retry_at:
        return receiving, []
    patience = min(receiving.patience * 2, MAX_PATIENCE_S)
    late = replace(receiving, asked=NO_CHUNKS, patience=patience, retry_at=now + patience, expected=False)
    return _ask(late, now)


def resume(receiving: Receiving, now: float) -> Step:
    """Request missing chunks at once, after a reconnect or at the end of a publication."""
    least = receiving.least
    again = replace(receiving, asked=NO_CHUNKS, patience=least, retry_at=now + least, expected=False)
    return _ask(again, now)


def _ask(receiving: Receiving, now: float) -> Step:
    """Refill the window once half of it has arrived, with one request per run of adjacent chunks."""
    if receiving.complete or receiving.expected or len(receiving.asked) > WINDOW // 2:
        return receiving, []
    commands: list[TransferCommand] = []
    asked, taken = receiving.asked, receiving.have
    for first, stop in asked.runs:
        taken = taken.adding(first, stop - first)
    while (room := WINDOW - len(asked)) > 0 and (gap := taken.gap(receiving.ref.chunks)) is not None:
        first, count = gap[0], min(gap[1], room)
        asked, taken = asked.adding(first, count), taken.adding(first, count)
        commands.append(RequestChunks(receiving.ref, first, count))
    return replace(receiving, asked=asked), commands


def _scatters(receiving: Receiving, index: int) -> bool:
    """Whether a chunk would add to more runs than an honest sender makes."""
    have = receiving.have
    return len(have.runs) >= MAX_RUNS and index not in receiving.asked and not have.touches(index)
