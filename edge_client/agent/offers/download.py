"""The download of an offered file: pure functions of the state of its trial."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from edge_client.agent.offers.trial import FileEvent, TrialState
from edge_client.agent.session.events import BlobChecked, ChunkArrived, ChunkLost, SendMessage
from edge_client.transport import chunk_transfer
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, ChunkSet

State = TypeVar("State", bound=TrialState)
FileCommand = SendMessage | chunk_transfer.WriteChunk | chunk_transfer.VerifyBlob


def start_download(
    state: State, ref: BlobRef, present: ChunkSet, now: float
) -> tuple[State, Sequence[FileCommand]]:
    """Request the chunks that are not `present`."""
    receiving, commands = chunk_transfer.start_transfer(ref, now, present, pushed=False)
    return _with(state, receiving, commands)


def is_complete(state: TrialState, event: FileEvent) -> bool:
    """Whether the event says that the whole file is stored."""
    receiving = state.receiving
    return receiving is not None and event == BlobChecked(receiving.ref.digest, sound=True)


def advance(state: State, event: FileEvent, now: float) -> tuple[State, Sequence[FileCommand]]:
    """Apply an event of the download; raises `PeerError` for a chunk that does not fit."""
    receiving = state.receiving
    if receiving is None:
        return state, []
    match event:
        case ChunkArrived(chunk) if state.expects(chunk):
            return _with(state, *chunk_transfer.accept(receiving, chunk, now))
        case ChunkLost(digest, index) if digest == receiving.ref.digest:
            return _with(state, chunk_transfer.on_lost_chunk(receiving, index, now), [])
        case BlobChecked(digest, sound=False) if digest == receiving.ref.digest:
            return start_download(state, receiving.ref, NO_CHUNKS, now)
        case _:
            return state, []


def tick(state: State, now: float) -> tuple[State, Sequence[FileCommand]]:
    """Repeat requests that were not answered in time."""
    return _ask(state, chunk_transfer.tick, now)


def resume(state: State, now: float) -> tuple[State, Sequence[FileCommand]]:
    """Request everything that is missing, after a reconnect."""
    return _ask(state, chunk_transfer.resume, now)


def _ask(
    state: State, ask: Callable[[chunk_transfer.Receiving, float], chunk_transfer.Step], now: float
) -> tuple[State, Sequence[FileCommand]]:
    if state.receiving is None or not state.connected:
        return state, []
    return _with(state, *ask(state.receiving, now))


def _with(
    state: State, receiving: chunk_transfer.Receiving, commands: list[chunk_transfer.TransferCommand]
) -> tuple[State, Sequence[FileCommand]]:
    """The state with the download, whose requests become messages."""
    return replace(state, receiving=receiving), [
        SendMessage(command.request(state.federation, state.device))
        if isinstance(command, chunk_transfer.RequestChunks)
        else command
        for command in commands
    ]
