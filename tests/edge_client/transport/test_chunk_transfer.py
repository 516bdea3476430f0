"""Fetching a blob chunk by chunk: bounded, resumable, and in any order."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import (
    MAX_PATIENCE_S,
    PATIENCE_S,
    WINDOW,
    Receiving,
    RequestChunks,
    VerifyBlob,
    WriteChunk,
)
from schemas.errors import PeerError
from schemas.tensors.chunks import MAX_BLOB_BYTES, BlobRef, Chunk, digest_of
from tests.chunk_bits import chunks_of

CHUNK = 1024


def blob(chunks: int, last: int = CHUNK) -> tuple[BlobRef, bytes]:
    """A blob of `chunks` chunks, the last one of `last` bytes; not inline if it has several."""
    data = random.Random(chunks).randbytes((chunks - 1) * CHUNK + last)
    return BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=CHUNK), data


def chunk(ref: BlobRef, data: bytes, index: int) -> Chunk:
    return Chunk(ref.digest[:16], index, data[index * CHUNK : (index + 1) * CHUNK])


def requested(commands: list) -> list[int]:
    """The requested chunk numbers."""
    return [
        i
        for command in commands
        if isinstance(command, RequestChunks)
        for i in range(command.first, command.first + command.count)
    ]


def take(receiving: Receiving, data: bytes, indices, now: float = 0.0) -> tuple[Receiving, list]:
    """Accept these chunks one by one; returns all commands."""
    commands = []
    for index in indices:
        receiving, more = chunk_transfer.accept(receiving, chunk(receiving.ref, data, index), now)
        commands += more
    return receiving, commands


def test_a_transfer_starts_by_requesting_one_window():
    ref, _ = blob(40)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0)
    assert commands == [RequestChunks(ref, 0, WINDOW)]
    assert not receiving.complete


def test_a_blob_smaller_than_a_window_is_requested_at_once():
    ref, _ = blob(3, last=5)
    assert chunk_transfer.start_transfer(ref, 0.0)[1] == [RequestChunks(ref, 0, 3)]


def test_chunks_fetched_by_an_earlier_process_are_not_requested():
    ref, data = blob(6)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0, have=chunks_of(0b010110))
    assert commands == [RequestChunks(ref, 0, 1), RequestChunks(ref, 3, 1), RequestChunks(ref, 5, 1)]
    receiving, commands = take(receiving, data, [1, 0, 3, 5])
    assert [write.index for write in commands if isinstance(write, WriteChunk)] == [0, 3, 5]
    assert commands[-1] == VerifyBlob(ref)


@pytest.mark.parametrize(("chunks", "last"), [(6, CHUNK), (1, 100)])
def test_a_complete_blob_is_verified_immediately(chunks, last):
    ref, data = blob(chunks, last)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0, have=chunks_of((1 << chunks) - 1))
    assert commands == [VerifyBlob(ref)]
    assert receiving.complete
    assert take(receiving, data, range(chunks)) == (receiving, [])


def test_chunk_numbers_beyond_the_blob_are_ignored():
    ref, _ = blob(3)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0, have=chunks_of(0b11000))
    assert commands == [RequestChunks(ref, 0, 3)]
    assert receiving.have == chunks_of(0)


def test_the_window_is_refilled_once_half_of_it_has_arrived():
    ref, data = blob(40)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)
    # 16 requested; after 7 chunks 9 are outstanding, more than half: nothing is requested.
    receiving, commands = take(receiving, data, range(7))
    assert requested(commands) == []
    # The eighth leaves 8 outstanding: the window is refilled with 16..23.
    receiving, commands = take(receiving, data, [7])
    assert [command for command in commands if isinstance(command, RequestChunks)] == [
        RequestChunks(ref, 16, 8)
    ]


def test_requests_are_runs_of_adjacent_missing_chunks():
    ref, data = blob(12)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)
    receiving, _ = take(receiving, data, [2, 3, 7])
    _, commands = chunk_transfer.resume(receiving, 1.0)
    assert commands == [RequestChunks(ref, 0, 2), RequestChunks(ref, 4, 3), RequestChunks(ref, 8, 4)]


def test_each_chunk_is_written_and_the_last_one_triggers_verification():
    ref, data = blob(2, last=7)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)
    receiving, commands = take(receiving, data, [1])
    assert commands == [WriteChunk(ref, 1, data[CHUNK:])]
    receiving, commands = take(receiving, data, [0])
    assert commands == [WriteChunk(ref, 0, data[:CHUNK]), VerifyBlob(ref)]
    assert receiving.complete


def test_a_duplicate_chunk_changes_nothing():
    ref, data = blob(5)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)
    once, _ = take(receiving, data, [3])
    assert take(once, data, [3]) == (once, [])


def test_a_duplicate_last_chunk_does_not_verify_twice():
    ref, data = blob(2)
    receiving, _ = take(chunk_transfer.start_transfer(ref, 0.0)[0], data, [0, 1])
    assert take(receiving, data, [1, 0]) == (receiving, [])


def test_a_chunk_that_was_not_requested_is_accepted():
    ref, data = blob(40)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)
    receiving, commands = take(receiving, data, [39])
    assert commands == [WriteChunk(ref, 39, data[39 * CHUNK :])]


REF, DATA = blob(4, last=100)


@pytest.mark.parametrize(
    "wrong",
    [
        Chunk("0" * 16, 0, DATA[:CHUNK]),
        Chunk(REF.digest[:15] + "x", 0, DATA[:CHUNK]),
        Chunk(REF.digest[:16], 4, DATA[:CHUNK]),
        Chunk(REF.digest[:16], 2**32 - 1, DATA[:CHUNK]),
        Chunk(REF.digest[:16], 0, DATA[: CHUNK - 1]),
        Chunk(REF.digest[:16], 0, DATA[: CHUNK + 1]),
        Chunk(REF.digest[:16], 3, DATA[:CHUNK]),
        Chunk(REF.digest[:16], 3, b""),
    ],
    ids=["prefix", "near prefix", "index", "far index", "short", "long", "long last", "empty"],
)
def test_an_invalid_chunk_is_refused_without_effect(wrong):
    receiving, _ = chunk_transfer.start_transfer(REF, 0.0)
    with pytest.raises(PeerError):
        chunk_transfer.accept(receiving, wrong, 1.0)
    done, commands = take(receiving, DATA, range(4), 1.0)
    assert done.complete
    assert commands[-1] == VerifyBlob(REF)


def test_nothing_is_requested_again_before_the_timeout():
    receiving, _ = chunk_transfer.start_transfer(REF, 10.0)
    assert chunk_transfer.tick(receiving, 10.0 + PATIENCE_S - 0.01) == (receiving, [])


def test_the_timeout_doubles_up_to_a_maximum():
    receiving, _ = chunk_transfer.start_transfer(REF, 0.0)
    pauses, now = [], 0.0
    for _ in range(7):
        pause = receiving.retry_at - now
        now = receiving.retry_at
        pauses.append(pause)
        receiving, commands = chunk_transfer.tick(receiving, now)
        assert commands == [RequestChunks(REF, 0, 4)]
    # 2, 4, 8, 16; then 32 exceeds the maximum of 30.
    assert pauses == [2.0, 4.0, 8.0, 16.0, MAX_PATIENCE_S, MAX_PATIENCE_S, MAX_PATIENCE_S]


def test_an_arriving_chunk_resets_the_timeout():
    receiving, _ = chunk_transfer.start_transfer(REF, 0.0)
    receiving, _ = chunk_transfer.tick(receiving, 2.0)
    receiving, _ = chunk_transfer.tick(receiving, 6.0)
    receiving, _ = take(receiving, DATA, [0], 7.0)
    assert (receiving.patience, receiving.retry_at) == (PATIENCE_S, 7.0 + PATIENCE_S)


def test_a_chunk_that_could_not_be_stored_is_requested_again_later():
    receiving, _ = chunk_transfer.start_transfer(REF, 0.0)
    receiving, _ = take(receiving, DATA, [0, 1, 2, 3], 1.0)
    receiving = chunk_transfer.on_lost_chunk(receiving, 3, 1.0)
    assert not receiving.complete
    assert chunk_transfer.tick(receiving, 1.0 + MAX_PATIENCE_S - 0.01)[1] == []
    receiving, commands = chunk_transfer.tick(receiving, 1.0 + MAX_PATIENCE_S)
    assert commands == [RequestChunks(REF, 3, 1)]
    assert take(receiving, DATA, [3])[1][-1] == VerifyBlob(REF)


def test_while_no_chunk_can_be_stored_only_one_window_is_requested():
    ref, data = blob(40)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0)
    for index in requested(commands):
        receiving, more = take(receiving, data, [index])
        receiving = chunk_transfer.on_lost_chunk(receiving, index, 0.0)
        assert requested(more) == []
    assert receiving.have == chunks_of(0)


def test_a_timeout_requests_only_missing_chunks():
    receiving, _ = chunk_transfer.start_transfer(REF, 0.0)
    receiving, _ = take(receiving, DATA, [0, 2], 1.0)
    assert requested(chunk_transfer.tick(receiving, 3.0)[1]) == [1, 3]


def test_a_resumed_transfer_requests_missing_chunks_immediately():
    receiving, _ = chunk_transfer.start_transfer(REF, 0.0)
    receiving, _ = take(receiving, DATA, [1, 2], 0.5)
    receiving, _ = chunk_transfer.tick(receiving, 2.5)
    resumed, commands = chunk_transfer.resume(receiving, 2.6)
    assert requested(commands) == [0, 3]
    assert (resumed.patience, resumed.retry_at) == (PATIENCE_S, 2.6 + PATIENCE_S)


def test_a_complete_transfer_requests_nothing_more():
    receiving, _ = take(chunk_transfer.start_transfer(REF, 0.0)[0], DATA, range(4))
    assert chunk_transfer.tick(receiving, 1e6) == (receiving, [])
    assert chunk_transfer.resume(receiving, 1e6)[1] == []


def test_an_inline_blob_is_requested_only_when_it_is_late():
    ref, data = blob(1, last=100)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0)
    assert ref.inline
    assert commands == []
    assert chunk_transfer.tick(receiving, PATIENCE_S - 0.01)[1] == []
    assert chunk_transfer.tick(receiving, PATIENCE_S)[1] == [RequestChunks(ref, 0, 1)]
    assert take(receiving, data, [0])[1] == [WriteChunk(ref, 0, data), VerifyBlob(ref)]


def test_an_inline_blob_is_requested_after_a_lost_connection():
    ref, _ = blob(1, last=100)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)
    assert chunk_transfer.resume(receiving, 0.1)[1] == [RequestChunks(ref, 0, 1)]


@settings(max_examples=60, deadline=None)
@given(chunks=st.integers(2, 70), last=st.integers(1, CHUNK), seed=st.integers(), loss=st.floats(0, 0.7))
def test_any_order_with_losses_and_duplicates_writes_every_chunk_once(chunks, last, seed, loss):
    fate = random.Random(seed)
    ref, data = blob(chunks, last)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0)
    written: dict[int, bytes] = {}
    checks, now = 0, 0.0
    in_flight: list[int] = []
    for _ in range(20_000):
        if receiving.complete:
            break
        in_flight += requested(commands)
        assert len(receiving.asked) <= WINDOW
        assert not set(receiving.asked) & set(receiving.have)
        if fate.random() < 0.02:
            receiving, commands = chunk_transfer.resume(receiving, now)
        elif in_flight:
            place = fate.randrange(len(in_flight))
            index = in_flight[place]
            if fate.random() > 0.1:
                in_flight.pop(place)
            commands = []
            if fate.random() >= loss:
                receiving, commands = chunk_transfer.accept(receiving, chunk(ref, data, index), now)
        else:
            now = receiving.retry_at
            receiving, commands = chunk_transfer.tick(receiving, now)
        for command in commands:
            if isinstance(command, WriteChunk):
                assert command.index not in written
                written[command.index] = command.data
            checks += isinstance(command, VerifyBlob)
    assert b"".join(written[index] for index in range(chunks)) == data
    assert checks == 1


@given(chunks=st.integers(2, 60), seed=st.integers())
def test_without_losses_every_chunk_is_requested_once(chunks, seed):
    fate = random.Random(seed)
    ref, data = blob(chunks)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0)
    requests, in_flight = requested(commands), requested(commands)
    while in_flight:
        index = in_flight.pop(fate.randrange(len(in_flight)))
        receiving, commands = chunk_transfer.accept(receiving, chunk(ref, data, index), 0.0)
        in_flight += requested(commands)
        requests += requested(commands)
        assert len(in_flight) <= WINDOW
    assert receiving.complete
    assert sorted(requests) == list(range(chunks))


def test_a_blob_of_four_million_chunks_costs_what_has_arrived_of_it() -> None:
    """The numbers of chunks alone decide, not how many a blob has: a bitmap would have 512 kB."""
    ref = BlobRef(digest="0" * 64, size=MAX_BLOB_BYTES, chunk_bytes=1024)
    receiving, commands = chunk_transfer.start_transfer(ref, 0.0)
    assert [(ask.first, ask.count) for ask in commands] == [(0, WINDOW)]
    for index in (0, 1, 4_000_000, ref.chunks - 1):
        receiving, _ = chunk_transfer.accept(receiving, Chunk("0" * 16, index, bytes(1024)), 0.0)
    receiving, _ = chunk_transfer.tick(receiving, 1e6)
    assert receiving.have.runs == ((0, 2), (4_000_000, 4_000_001), (ref.chunks - 1, ref.chunks))


def test_scattered_chunks_that_nobody_has_requested_are_not_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_transfer, "MAX_RUNS", 3)
    ref = BlobRef(digest="0" * 64, size=100 * 1024, chunk_bytes=1024)
    receiving, _ = chunk_transfer.start_transfer(ref, 0.0)

    def take(index: int) -> list[chunk_transfer.TransferCommand]:
        nonlocal receiving
        receiving, commands = chunk_transfer.accept(receiving, Chunk("0" * 16, index, bytes(1024)), 0.0)
        return [command for command in commands if isinstance(command, chunk_transfer.WriteChunk)]

    assert all(take(index) for index in (30, 40, 50))
    assert take(60) == []
    # What was requested, and what touches a run, is taken as ever.
    assert take(5)
    assert take(51)
    # All that is missing is requested in the end.
    for _ in range(100):
        receiving, asks = chunk_transfer.resume(receiving, 0.0)
        for ask in asks:
            assert isinstance(ask, chunk_transfer.RequestChunks)
            for index in range(ask.first, ask.first + ask.count):
                take(index)
    assert receiving.complete
