"""Accepting a task, fetching its blobs, and starting work."""

import pytest

from edge_client.agent.session.events import BlobChecked, ChunkArrived, ChunkLost, Received, StartWork, Tick
from edge_client.agent.session.machine import Session, SessionPhase, step
from edge_client.transport.chunk_transfer import MAX_PATIENCE_S, PATIENCE_S, VerifyBlob, WriteChunk
from schemas.errors import PeerError
from schemas.tensors.chunks import Chunk
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.session.by_hand import (
    CHUNK,
    DEVICE,
    FEDERATION,
    FETCHING,
    IDLE,
    NEXT,
    NEXT_DATA,
    PHASES,
    SMALL,
    STATE,
    STATE_DATA,
    WORKING,
    accepted,
    after,
    chunks,
    damaged,
    request,
    task,
)


def test_each_example_session_is_in_its_phase():
    phases = [
        SessionPhase.IDLE,
        SessionPhase.FETCHING,
        SessionPhase.WORKING,
        SessionPhase.REPORTING,
        SessionPhase.IDLE,
    ]
    assert [session.phase for session in PHASES.values()] == phases


def test_an_offer_is_accepted_and_its_missing_blobs_are_requested():
    session, commands = step(IDLE, Received(task()), 0.0)
    assert session.phase is SessionPhase.FETCHING
    assert commands == [accepted(), request(STATE, 0, 3)]


def test_only_the_missing_chunks_of_a_partial_blob_are_requested():
    session, commands = step(IDLE, Received(task(), {STATE.digest: chunks_of(0b010)}), 0.0)
    assert commands == [accepted(), request(STATE, 0, 1), request(STATE, 2, 1)]
    session = after(session, chunks(STATE_DATA)[0])
    assert step(session, chunks(STATE_DATA)[2], 0.0)[1][-1] == VerifyBlob(STATE)


def test_a_complete_but_unverified_blob_is_verified_before_work_begins():
    session, commands = step(IDLE, Received(task(), {STATE.digest: chunks_of(0b111)}), 0.0)
    assert commands == [accepted(), VerifyBlob(STATE)]
    assert step(session, BlobChecked(STATE.digest, True), 0.0)[1] == [StartWork(task())]
    assert step(session, BlobChecked(STATE.digest, False), 0.0)[1] == [damaged(STATE), request(STATE, 0, 3)]


def test_work_begins_immediately_if_every_blob_is_held():
    holder = Session(FEDERATION, DEVICE, held=frozenset({STATE.digest}), connected=True)
    session, commands = step(holder, Received(task()), 0.0)
    assert session.phase is SessionPhase.WORKING
    assert commands == [accepted(), StartWork(task())]


def test_an_inline_blob_is_requested_only_after_a_wait():
    session, commands = step(IDLE, Received(task(state=SMALL)), 0.0)
    assert commands == [accepted()]
    assert step(session, Tick(), PATIENCE_S - 0.1)[1] == []
    assert step(session, Tick(), PATIENCE_S)[1] == [request(SMALL, 0, 1)]


def test_a_blob_that_a_task_names_twice_is_fetched_once():
    twice = task(blobs={"state": STATE, "channel-map": STATE})
    session, commands = step(IDLE, Received(twice), 0.0)
    assert commands == [accepted(), request(STATE, 0, 3)]
    assert after(session, *chunks(STATE_DATA), BlobChecked(STATE.digest, True)).phase is SessionPhase.WORKING


def test_chunks_are_written_and_a_complete_blob_is_verified():
    session, written = FETCHING, []
    for event in chunks(STATE_DATA):
        session, commands = step(session, event, 0.0)
        written += commands
    first, second, third = (STATE_DATA[at : at + CHUNK] for at in (0, 1024, 2048))
    assert written == [
        WriteChunk(STATE, 0, first),
        WriteChunk(STATE, 1, second),
        WriteChunk(STATE, 2, third),
        VerifyBlob(STATE),
    ]
    assert session.phase is SessionPhase.FETCHING


def test_work_begins_when_the_last_blob_is_verified():
    both = after(IDLE, Received(task(blobs={"state": STATE, "channel-map": NEXT})))
    both = after(both, *chunks(STATE_DATA), *chunks(NEXT_DATA))
    both, commands = step(both, BlobChecked(NEXT.digest, True), 0.0)
    assert (both.phase, commands) == (SessionPhase.FETCHING, [])
    both, commands = step(both, BlobChecked(STATE.digest, True), 0.0)
    assert (both.phase, [type(command) for command in commands]) == (SessionPhase.WORKING, [StartWork])
    assert both.held == {STATE.digest, NEXT.digest}


def test_a_damaged_blob_is_fetched_again():
    complete = after(FETCHING, *chunks(STATE_DATA))
    session, commands = step(complete, BlobChecked(STATE.digest, False), 5.0)
    assert commands == [damaged(STATE), request(STATE, 0, 3)]
    assert session.held == frozenset()
    again = after(session, *chunks(STATE_DATA), BlobChecked(STATE.digest, True))
    assert again.phase is SessionPhase.WORKING


def test_missing_chunks_are_requested_again():
    session = after(FETCHING, chunks(STATE_DATA)[1], now=1.0)
    assert step(session, Tick(), 1.0 + PATIENCE_S)[1] == [request(STATE, 0, 1), request(STATE, 2, 1)]


def test_a_chunk_of_an_unrequested_blob_is_ignored():
    for session in PHASES.values():
        assert step(session, chunks(NEXT_DATA)[0], 0.0) == (session, [])


def test_a_chunk_that_does_not_fit_its_blob_is_refused():
    with pytest.raises(PeerError):
        step(FETCHING, ChunkArrived(Chunk(STATE.digest[:16], 0, b"short")), 0.0)
    assert after(FETCHING, *chunks(STATE_DATA), BlobChecked(STATE.digest, True)) == WORKING


def test_a_verified_blob_of_an_earlier_task_is_only_recorded_as_held():
    session = after(FETCHING, *chunks(STATE_DATA), Received(task(2, state=NEXT)))
    session, commands = step(session, BlobChecked(STATE.digest, True), 0.0)
    assert (session.phase, commands) == (SessionPhase.FETCHING, [])
    assert STATE.digest in session.held


def test_a_chunk_that_could_not_be_stored_counts_as_missing_and_is_requested_again():
    session = after(FETCHING, *chunks(STATE_DATA))
    assert session.has_all_of(STATE)
    session = after(session, ChunkLost(STATE.digest, 2))
    assert not session.has_all_of(STATE)
    assert step(session, Tick(), MAX_PATIENCE_S - 0.1)[1] == []
    session, commands = step(session, Tick(), MAX_PATIENCE_S)
    assert commands == [request(STATE, 2, 1)]
    assert after(session, chunks(STATE_DATA)[2]).has_all_of(STATE)


def test_a_lost_chunk_of_an_unrequested_blob_is_ignored():
    assert step(WORKING, ChunkLost(STATE.digest, 0), 0.0) == (WORKING, [])
    assert not WORKING.has_all_of(STATE)
