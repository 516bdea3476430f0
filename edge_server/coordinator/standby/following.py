"""Following a run from afar, a pure state machine: entries are fetched, applied in order, and confirmed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_client.transport import chunk_transfer
from schemas.base import Digest, Frozen
from schemas.messages import StandbyEntry
from schemas.tensors.chunks import BlobRef, Chunk

Value = None | int | float | str


class Entry(Frozen):
    """A step. `journal` is the whole file, in the first step; `changes` are made to it in the others.

    `files` are new or changed, by their paths in the run folder; those that are `gone` are deleted.
    """

    files: Mapping[str, BlobRef] = {}
    gone: tuple[str, ...] = ()
    journal: BlobRef | None = None
    changes: tuple[tuple[str, tuple[tuple[Value, ...], ...]], ...] = ()

    @property
    def blobs(self) -> Mapping[Digest, BlobRef]:
        """Every blob that the step needs."""
        refs = [*self.files.values(), *([self.journal] if self.journal else [])]
        return {ref.digest: ref for ref in refs}


AT_ONCE = 4  # Blobs that are fetched at once; entries are sent unasked


@dataclass(frozen=True)
class Announced:
    """The server has announced an entry."""

    message: StandbyEntry


@dataclass(frozen=True)
class ChunkArrived:
    """A chunk of some blob has come."""

    chunk: Chunk


@dataclass(frozen=True)
class Checked:
    """A blob whose chunks are complete was checked."""

    ref: BlobRef
    sound: bool


@dataclass(frozen=True)
class Opened:
    """The entry's blob was read."""

    number: int
    entry: Entry


@dataclass(frozen=True)
class Applied:
    """The entry is in the copy, on disk."""

    number: int


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class OpenEntry:
    """Command: read an entry's blob."""

    number: int
    ref: BlobRef


@dataclass(frozen=True)
class ApplyEntry:
    """Command: put an entry into the copy."""

    number: int
    entry: Entry


@dataclass(frozen=True)
class Report:
    """Command: tell the server how far the copy is."""


Event = Announced | ChunkArrived | Checked | Opened | Applied | Tick
Command = chunk_transfer.TransferCommand | OpenEntry | ApplyEntry | Report


@dataclass(frozen=True)
class Following:
    """How far a copy is: entries up to `confirmed` are in it, all up to `known` were announced.

    `entries` are announced and not applied; `opened` is the content of the next one; blobs in `receiving` are
    fetched, those in `held` are in the store.
    """

    standby: str
    series: str = ""
    known: int = 0
    confirmed: int = 0
    entries: Mapping[int, BlobRef] = field(default_factory=dict)
    opened: Entry | None = None
    applying: bool = False
    receiving: Mapping[str, chunk_transfer.Receiving] = field(default_factory=dict)
    held: frozenset[str] = frozenset()


Step = tuple[Following, list[Command]]


def step(state: Following, event: Event, now: float) -> Step:
    """Apply one event; raises `PeerError` for a chunk that does not fit its blob (the state is unchanged)."""
    match event:
        case Announced(message):
            return _on_announced(state, message, now)
        case ChunkArrived(chunk):
            return _chunk(state, chunk, now)
        case Checked(ref, sound):
            return _on_checked(state, ref, now, sound=sound)
        case Opened(number, entry):
            opened = replace(state, opened=entry) if number == state.confirmed + 1 else state
            return _advance(opened, [], now)
        case Applied(number):
            return _on_applied(state, number, now)
        case Tick():
            return _tick(state, now)


def _on_announced(state: Following, message: StandbyEntry, now: float) -> Step:
    if message.standby != state.standby:
        return state, []
    if message.series != state.series:
        if message.number != 1:
            return state, []
        state = Following(state.standby, message.series)
    if message.number != state.known + 1:
        return state, []
    heard = replace(state, known=message.number, entries={**state.entries, message.number: message.entry})
    return _advance(*_fetch(heard, message.entry, now, pushed=message.entry.inline), now)


def _fetch(state: Following, ref: BlobRef, now: float, *, pushed: bool = False) -> Step:
    if ref.digest in state.receiving or ref.digest in state.held:
        return state, []
    receiving, commands = chunk_transfer.start_transfer(ref, now, pushed=pushed)
    return replace(state, receiving={**state.receiving, ref.digest: receiving}), [*commands]


def _chunk(state: Following, chunk: Chunk, now: float) -> Step:
    for digest, receiving in state.receiving.items():
        if digest.startswith(chunk.prefix):
            taken, commands = chunk_transfer.accept(receiving, chunk, now)
            return replace(state, receiving={**state.receiving, digest: taken}), [*commands]
    return state, []


def _on_checked(state: Following, ref: BlobRef, now: float, *, sound: bool) -> Step:
    if ref.digest not in state.receiving:
        return state, []
    waiting = {digest: known for digest, known in state.receiving.items() if digest != ref.digest}
    after = replace(state, receiving=waiting)
    if not sound:
        return _fetch(after, ref, now)
    return _advance(replace(after, held=after.held | {ref.digest}), [], now)


def _advance(state: Following, commands: list[Command], now: float) -> Step:
    """Go on with the next entry as far as possible."""
    number = state.confirmed + 1
    ref = state.entries.get(number)
    if ref is None or state.applying or ref.digest not in state.held:
        return state, commands
    if state.opened is None:
        return state, [*commands, OpenEntry(number, ref)]
    missing = [blob for blob in state.opened.blobs.values() if blob.digest not in state.held]
    if not missing:
        return replace(state, applying=True), [*commands, ApplyEntry(number, state.opened)]
    for blob in missing[:AT_ONCE]:
        state, more = _fetch(state, blob, now)
        commands = commands + more
    return state, commands


def _on_applied(state: Following, number: int, now: float) -> Step:
    if number != state.confirmed + 1 or state.opened is None:
        return state, []
    gone = {state.entries[number].digest, *state.opened.blobs}
    left = {n: ref for n, ref in state.entries.items() if n != number}
    after = replace(
        state, confirmed=number, entries=left, opened=None, applying=False, held=state.held - gone
    )
    return _advance(after, [Report()], now)


def _tick(state: Following, now: float) -> Step:
    commands: list[Command] = []
    receiving = dict(state.receiving)
    for digest, known in state.receiving.items():
        receiving[digest], more = chunk_transfer.tick(known, now)
        commands += more
    return replace(state, receiving=receiving), commands
