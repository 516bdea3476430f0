"""A session that uses an object store: every way to it, and every way back to chunks."""

import pytest

from edge_client.agent.session.events import (
    BlobChecked,
    Connected,
    Disconnected,
    Received,
    SendChunks,
    SessionRestored,
    Settled,
    StartWork,
    Tick,
    WorkDone,
)
from edge_client.agent.session.machine import RESEND_S, Session, SessionPhase, step
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.transport.chunk_transfer import VerifyBlob
from edge_client.transport.object_store.http_transfers import Fetch, FetchEnded, Put, PutEnded, StopTransfers
from schemas.messages.object_store import Addresses, ObjectStoreTerms
from tests.edge_client.agent.session.by_hand import (
    DEVICE,
    FEDERATION,
    IDLE,
    RESULT,
    STATE,
    STATE_DATA,
    accepted,
    ack,
    after,
    announcement,
    chunks,
    damaged,
    request,
    task,
    update,
)

STORE = "https://store/home/"
# The blobs of these tests have 2,500 bytes, in three chunks: more than 1,000 go past the broker.
TERMS = ObjectStoreTerms(address=STORE, above=1000, resumable=True)


def offered(
    number: int = 1, *, generation: int = 1, get: str | None = None, put: str | None = None
) -> Received:
    """A task with addresses of the store, other ones with each generation."""
    addresses = Addresses(
        get={"state": get or f"{STORE}blobs/state?{generation}"},
        put=put or f"{STORE}updates/pi?{generation}",
    )
    return Received(task(number, depot=TERMS, addresses=addresses))


def fetch(generation: int = 1) -> Fetch:
    return Fetch(STATE, f"{STORE}blobs/state?{generation}")


def put(generation: int = 1) -> Put:
    return Put(RESULT, f"{STORE}updates/pi?{generation}", resumable=True)


ALL = 0b111
FETCHING = after(IDLE, offered())
WORKING = after(FETCHING, FetchEnded(STATE.digest, ALL), BlobChecked(STATE.digest, True))
PUTTING = after(WORKING, WorkDone(update()))
DEPOSITED = update().model_copy(update={"deposited": True})


def commands_of(session: Session, event, now: float = 0.0) -> list:
    return step(session, event, now)[1]


def test_a_large_blob_is_fetched_and_not_asked_for():
    assert commands_of(IDLE, offered()) == [accepted(), fetch()]
    assert FETCHING.phase is SessionPhase.FETCHING
    assert not FETCHING.receiving


def test_a_small_one_rides_along_as_ever():
    bare = Received(task(depot=TERMS, addresses=Addresses()))
    assert commands_of(IDLE, bare) == [accepted(), request(STATE, 0, 3)]


def test_what_was_fetched_is_checked_like_everything_else_and_work_begins():
    checking, commands = step(FETCHING, FetchEnded(STATE.digest, ALL), 0.0)
    assert commands == [VerifyBlob(STATE)]
    assert checking.has_all_of(STATE)
    _, commands = step(checking, BlobChecked(STATE.digest, True), 0.0)
    assert [type(command) for command in commands] == [StartWork]


def test_what_is_missing_after_a_fetch_comes_in_chunks():
    """Chunk 1 of 0, 1, 2 has come."""
    failed, commands = step(FETCHING, FetchEnded(STATE.digest, 0b010), 0.0)
    assert commands == [request(STATE, 0, 1), request(STATE, 2, 1)]
    there = after(failed, chunks(STATE_DATA)[0], chunks(STATE_DATA)[2], BlobChecked(STATE.digest, True))
    assert there.phase is SessionPhase.WORKING


def test_wrong_bytes_of_the_store_are_asked_for_in_chunks():
    wrong = after(FETCHING, FetchEnded(STATE.digest, ALL))
    assert commands_of(wrong, BlobChecked(STATE.digest, False)) == [damaged(STATE), request(STATE, 0, 3)]


def test_what_has_gone_wrong_once_is_not_tried_again_when_the_task_is_repeated():
    failed = after(FETCHING, FetchEnded(STATE.digest, 0))
    assert commands_of(failed, offered(generation=2)) == [accepted()]


def test_an_address_that_has_ended_is_tried_again_with_a_fresh_one_only():
    renewed = after(FETCHING, offered(generation=2))
    ended = FetchEnded(STATE.digest, 0b001, expired=True)
    assert commands_of(renewed, ended) == [fetch(2)]
    assert commands_of(FETCHING, ended) == [request(STATE, 1, 2)]
    # The fresh one is refused, too.
    again = after(renewed, ended)
    assert commands_of(again, ended) == [request(STATE, 1, 2)]


def test_a_task_that_came_without_addresses_goes_past_the_broker_once_they_come():
    asking = after(IDLE, Received(task(depot=TERMS)))
    session, commands = step(after(asking, chunks(STATE_DATA)[0]), offered(), 0.0)
    assert commands == [accepted(), fetch()]
    # One that was on its way is late: only the current fetch writes.
    assert commands_of(session, chunks(STATE_DATA)[1]) == []


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://other/home/blobs/state?1",
        "https://store/homely/state?1",
        "http://store/home/blobs/state?1",
        "https://store/home/../admin?1",
        "https://store/home/%2e%2e/admin?1",
    ],
)
def test_an_address_outside_of_the_signed_store_is_not_gone_to(elsewhere: str):
    assert commands_of(IDLE, offered(get=elsewhere)) == [accepted(), request(STATE, 0, 3)]
    working = after(
        IDLE, offered(get=elsewhere, put=elsewhere), *chunks(STATE_DATA), BlobChecked(STATE.digest, True)
    )
    assert [command.message for command in commands_of(working, WorkDone(update()))] == [update()]


def test_a_cut_link_does_not_stop_a_fetch_and_chunks_wait_for_it():
    away = after(FETCHING, Disconnected())
    failed, commands = step(away, FetchEnded(STATE.digest, 0b001), 0.0)
    assert commands == []
    assert commands_of(failed, Connected()) == [request(STATE, 1, 2)]
    assert commands_of(away, FetchEnded(STATE.digest, ALL)) == [VerifyBlob(STATE)]


def test_a_large_update_is_put_there_before_it_is_told():
    assert commands_of(WORKING, WorkDone(update())) == [put()]
    assert commands_of(PUTTING, Tick(), now=RESEND_S + 1) == []
    sent = commands_of(PUTTING, PutEnded(RESULT.digest, done=True))
    assert [command.message for command in sent] == [DEPOSITED]
    assert after(PUTTING, PutEnded(RESULT.digest, done=True)).snapshot.result == DEPOSITED


def test_a_task_that_is_repeated_meanwhile_is_accepted_again():
    assert commands_of(PUTTING, offered(generation=2)) == [accepted()]
    assert commands_of(PUTTING, Connected()) == []


def test_an_update_that_cannot_be_put_there_goes_in_chunks():
    failed, sent = step(PUTTING, PutEnded(RESULT.digest), 0.0)
    assert [command.message for command in sent] == [update()]
    again = commands_of(failed, offered(generation=2))
    assert [command.message for command in again] == [update()]


def test_a_put_whose_address_has_ended_is_tried_again_with_a_fresh_one_only():
    ended = PutEnded(RESULT.digest, expired=True)
    assert commands_of(after(PUTTING, offered(generation=2)), ended) == [put(2)]
    assert [command.message for command in commands_of(PUTTING, ended)] == [update()]


def test_a_server_that_does_not_find_it_there_is_given_its_chunks():
    reported = after(PUTTING, PutEnded(RESULT.digest, done=True))
    asked = Received(request(RESULT, 0, 2).message)
    assert commands_of(reported, asked) == [SendChunks(RESULT, 0, 2)]
    assert commands_of(reported, ack()) == [Settled(DEPOSITED)]


def test_a_task_that_is_dropped_ends_what_is_on_its_way():
    assert commands_of(FETCHING, announcement(2)) == [StopTransfers()]
    assert commands_of(PUTTING, announcement(2)) == [StopTransfers()]
    dropped = after(PUTTING, announcement(2))
    assert commands_of(dropped, PutEnded(RESULT.digest, done=True)) == []
    assert commands_of(dropped, FetchEnded(STATE.digest, ALL)) == []


def test_addresses_are_not_remembered():
    for session in (FETCHING, WORKING, PUTTING):
        assert "?1" not in session.snapshot.model_dump_json()
        assert "?1" not in repr(session)


def remembered(session: Session, held: frozenset[str] = frozenset()) -> Session:
    """A later process of the device, connected."""
    memory = SessionSnapshot.model_validate_json(session.snapshot.model_dump_json())
    return after(
        Session(FEDERATION, DEVICE, held=held), Connected(), SessionRestored(memory, {STATE.digest: 0b001})
    )


def test_a_device_that_was_killed_while_it_fetched_goes_on_past_the_broker():
    """It begins in chunks, for addresses are not kept; its birth brings the task again, with fresh ones."""
    back = remembered(FETCHING)
    assert commands_of(back, offered(generation=2)) == [accepted(), fetch(2)]


def test_a_device_that_was_killed_while_it_put_its_update_there_goes_on_so():
    back = remembered(PUTTING, held=frozenset({RESULT.digest}))
    assert back.phase is SessionPhase.REPORTING
    assert commands_of(back, offered(generation=2)) == [put(2)]
    # No task comes again: then the update goes in chunks.
    late = commands_of(back, Tick(), now=RESEND_S + 1)
    assert [command.message for command in late] == [update()]
