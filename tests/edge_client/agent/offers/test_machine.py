"""The download of an offered file."""

import pytest

from edge_client.agent.offers import machine
from edge_client.agent.offers.trial import TrialState
from edge_client.agent.session.events import BlobChecked, ChunkArrived, ChunkLost, SendMessage
from edge_client.transport.chunk_transfer import MAX_PATIENCE_S, PATIENCE_S, VerifyBlob, WriteChunk
from schemas.errors import PeerError
from schemas.messages import BlobRequest
from schemas.tensors.chunks import NO_CHUNKS, BlobRef, Chunk, digest_of

DATA = b"model" * 20_000
REF = BlobRef(digest=digest_of(DATA), size=len(DATA), chunk_bytes=65_536)
IDLE = TrialState("home", "pi", connected=True)
BEGUN, FIRST_COMMANDS = machine.start_download(IDLE, REF, NO_CHUNKS, now=0.0)


def _chunk(index: int) -> ChunkArrived:
    return ChunkArrived(Chunk(REF.digest[:16], index, DATA[index * REF.chunk_bytes :][: REF.chunk_bytes]))


def _requested(commands: object) -> list[tuple[int, int]]:
    """First chunk and number of chunks of each request among the commands."""
    assert isinstance(commands, list)
    requests = [command.message for command in commands if isinstance(command, SendMessage)]
    return [(request.first, request.count) for request in requests if isinstance(request, BlobRequest)]


def test_chunks_are_requested_written_and_verified() -> None:
    assert _requested(FIRST_COMMANDS) == [(0, REF.chunks)]
    state, commands = machine.advance_download(BEGUN, _chunk(0), 0.1)
    assert [type(command) for command in commands] == [WriteChunk]
    state, commands = machine.advance_download(state, _chunk(1), 0.2)
    assert commands[-1] == VerifyBlob(REF)


def test_a_file_is_complete_once_it_is_verified_and_sound() -> None:
    assert machine.is_complete(BEGUN, BlobChecked(REF.digest, sound=True))
    assert not machine.is_complete(BEGUN, BlobChecked(REF.digest, sound=False))
    assert not machine.is_complete(BEGUN, BlobChecked("0" * 64, sound=True))
    assert not machine.is_complete(IDLE, BlobChecked(REF.digest, sound=True))


def test_a_damaged_file_is_requested_again_whole() -> None:
    _, commands = machine.advance_download(BEGUN, BlobChecked(REF.digest, sound=False), 1.0)
    assert _requested(commands) == [(0, REF.chunks)]


def test_events_of_other_files_change_nothing() -> None:
    other = Chunk("0" * 16, 0, b"")
    for event in (ChunkArrived(other), ChunkLost("0" * 64, 0), BlobChecked("0" * 64, sound=False)):
        assert machine.advance_download(BEGUN, event, 1.0) == (BEGUN, [])
        assert machine.advance_download(IDLE, event, 1.0) == (IDLE, [])
    assert not BEGUN.expects(other)


def test_a_chunk_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(PeerError, match="bytes"):
        machine.advance_download(BEGUN, ChunkArrived(Chunk(REF.digest[:16], 0, b"short")), 0.0)


def test_a_chunk_that_cannot_be_stored_is_requested_later() -> None:
    state, _ = machine.advance_download(BEGUN, _chunk(0), 0.0)
    state, commands = machine.advance_download(state, ChunkLost(REF.digest, 0), 0.0)
    assert commands == []
    _, commands = machine.repeat_requests(state, MAX_PATIENCE_S)
    assert _requested(commands) == [(0, REF.chunks)]


def test_requests_are_repeated_with_a_connection_only() -> None:
    assert _requested(machine.repeat_requests(BEGUN, PATIENCE_S)[1]) == [(0, REF.chunks)]
    assert _requested(machine.request_missing(BEGUN, 0.1)[1]) == [(0, REF.chunks)]
    cut_off = TrialState("home", "pi", receiving=BEGUN.receiving)
    assert machine.repeat_requests(cut_off, PATIENCE_S) == (cut_off, [])
