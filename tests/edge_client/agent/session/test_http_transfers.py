"""Transfers through an object store, and the fallbacks to chunks over MQTT."""

import pytest

from edge_client.agent.session import events
from edge_client.agent.session.machine import RESEND_S, Session, SessionPhase, step
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.transport.chunk_transfer import VerifyBlob
from edge_client.transport.object_store.http_transfers import Fetch, FetchEnded, Put, PutEnded, StopTransfers
from schemas.messages.blobs import Addresses, ObjectStoreTerms
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.session import by_hand

STORE = "https://store/home/"
# The blobs of these tests have 2,500 bytes in three chunks; blobs above 1,000 bytes bypass the broker.
TERMS = ObjectStoreTerms(address=STORE, above=1000, resumable=True)


def offered(
    number: int = 1, *, generation: int = 1, get: str | None = None, put: str | None = None
) -> events.Received:
    """A task with object store addresses, which differ in each generation."""
    addresses = Addresses(
        get={"state": get or f"{STORE}blobs/state?{generation}"}, put=put or f"{STORE}updates/pi?{generation}"
    )
    return events.Received(by_hand.task(number, depot=TERMS, addresses=addresses))


def fetch(generation: int = 1) -> Fetch:
    return Fetch(by_hand.STATE, f"{STORE}blobs/state?{generation}")


def put(generation: int = 1) -> Put:
    return Put(by_hand.RESULT, f"{STORE}updates/pi?{generation}", resumable=True)


ALL = chunks_of(0b111)
FETCHING = by_hand.after(by_hand.IDLE, offered())
WORKING = by_hand.after(
    FETCHING, FetchEnded(by_hand.STATE.digest, ALL), events.BlobChecked(by_hand.STATE.digest, True)
)
PUTTING = by_hand.after(WORKING, events.WorkDone(by_hand.update()))
DEPOSITED = by_hand.update().model_copy(update={"deposited": True})


def commands_of(session: Session, event, now: float = 0.0) -> list:
    return step(session, event, now)[1]


def test_a_large_blob_is_fetched_over_http_and_not_requested_in_chunks():
    assert commands_of(by_hand.IDLE, offered()) == [by_hand.accepted(), fetch()]
    assert FETCHING.phase is SessionPhase.FETCHING
    assert not FETCHING.receiving


def test_a_blob_without_an_address_is_requested_in_chunks():
    bare = events.Received(by_hand.task(depot=TERMS, addresses=Addresses()))
    assert commands_of(by_hand.IDLE, bare) == [by_hand.accepted(), by_hand.request(by_hand.STATE, 0, 3)]


def test_a_fetched_blob_is_verified_and_work_begins():
    checking, commands = step(FETCHING, FetchEnded(by_hand.STATE.digest, ALL), 0.0)
    assert commands == [VerifyBlob(by_hand.STATE)]
    assert checking.has_all_of(by_hand.STATE)
    _, commands = step(checking, events.BlobChecked(by_hand.STATE.digest, True), 0.0)
    assert [type(command) for command in commands] == [events.StartWork]


def test_chunks_missing_after_a_fetch_are_requested():
    """Of chunks 0, 1 and 2, only chunk 1 has arrived."""
    failed, commands = step(FETCHING, FetchEnded(by_hand.STATE.digest, chunks_of(0b010)), 0.0)
    assert commands == [by_hand.request(by_hand.STATE, 0, 1), by_hand.request(by_hand.STATE, 2, 1)]
    there = by_hand.after(
        failed,
        by_hand.chunks(by_hand.STATE_DATA)[0],
        by_hand.chunks(by_hand.STATE_DATA)[2],
        events.BlobChecked(by_hand.STATE.digest, True),
    )
    assert there.phase is SessionPhase.WORKING


def test_a_damaged_fetched_blob_is_requested_in_chunks():
    wrong = by_hand.after(FETCHING, FetchEnded(by_hand.STATE.digest, ALL))
    assert commands_of(wrong, events.BlobChecked(by_hand.STATE.digest, False)) == [
        by_hand.damaged(by_hand.STATE),
        by_hand.request(by_hand.STATE, 0, 3),
    ]


def test_a_failed_fetch_is_not_retried_when_the_task_is_repeated():
    failed = by_hand.after(FETCHING, FetchEnded(by_hand.STATE.digest, chunks_of(0)))
    assert commands_of(failed, offered(generation=2)) == [by_hand.accepted()]


def test_an_expired_fetch_is_retried_only_with_a_fresh_address():
    renewed = by_hand.after(FETCHING, offered(generation=2))
    ended = FetchEnded(by_hand.STATE.digest, chunks_of(0b001), expired=True)
    assert commands_of(renewed, ended) == [fetch(2)]
    assert commands_of(FETCHING, ended) == [by_hand.request(by_hand.STATE, 1, 2)]
    # The fresh address has expired, too.
    again = by_hand.after(renewed, ended)
    assert commands_of(again, ended) == [by_hand.request(by_hand.STATE, 1, 2)]


def test_a_task_without_addresses_is_fetched_over_http_once_they_arrive():
    asking = by_hand.after(by_hand.IDLE, events.Received(by_hand.task(depot=TERMS)))
    session, commands = step(by_hand.after(asking, by_hand.chunks(by_hand.STATE_DATA)[0]), offered(), 0.0)
    assert commands == [by_hand.accepted(), fetch()]
    # A chunk that was in flight arrives too late: only the current fetch writes.
    assert commands_of(session, by_hand.chunks(by_hand.STATE_DATA)[1]) == []


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
def test_an_address_outside_the_signed_store_is_not_used(elsewhere: str):
    assert commands_of(by_hand.IDLE, offered(get=elsewhere)) == [
        by_hand.accepted(),
        by_hand.request(by_hand.STATE, 0, 3),
    ]
    working = by_hand.after(
        by_hand.IDLE,
        offered(get=elsewhere, put=elsewhere),
        *by_hand.chunks(by_hand.STATE_DATA),
        events.BlobChecked(by_hand.STATE.digest, True),
    )
    assert [command.message for command in commands_of(working, events.WorkDone(by_hand.update()))] == [
        by_hand.update()
    ]


def test_a_lost_connection_does_not_stop_a_fetch_but_delays_chunk_requests():
    away = by_hand.after(FETCHING, events.Disconnected())
    failed, commands = step(away, FetchEnded(by_hand.STATE.digest, chunks_of(0b001)), 0.0)
    assert commands == []
    assert commands_of(failed, events.Connected()) == [by_hand.request(by_hand.STATE, 1, 2)]
    assert commands_of(away, FetchEnded(by_hand.STATE.digest, ALL)) == [VerifyBlob(by_hand.STATE)]


def test_a_large_update_is_uploaded_before_it_is_reported():
    assert commands_of(WORKING, events.WorkDone(by_hand.update())) == [put()]
    assert commands_of(PUTTING, events.Tick(), now=RESEND_S + 1) == []
    sent = commands_of(PUTTING, PutEnded(by_hand.RESULT.digest, done=True))
    assert [command.message for command in sent] == [DEPOSITED]
    assert by_hand.after(PUTTING, PutEnded(by_hand.RESULT.digest, done=True)).snapshot.result == DEPOSITED


def test_a_task_repeated_during_an_upload_is_accepted_again():
    assert commands_of(PUTTING, offered(generation=2)) == [by_hand.accepted()]
    assert commands_of(PUTTING, events.Connected()) == []


def test_an_update_that_cannot_be_uploaded_is_sent_in_chunks():
    failed, sent = step(PUTTING, PutEnded(by_hand.RESULT.digest), 0.0)
    assert [command.message for command in sent] == [by_hand.update()]
    again = commands_of(failed, offered(generation=2))
    assert [command.message for command in again] == [by_hand.update()]


def test_an_expired_upload_is_retried_only_with_a_fresh_address():
    ended = PutEnded(by_hand.RESULT.digest, expired=True)
    assert commands_of(by_hand.after(PUTTING, offered(generation=2)), ended) == [put(2)]
    assert [command.message for command in commands_of(PUTTING, ended)] == [by_hand.update()]


def test_the_server_receives_chunks_of_an_update_missing_from_the_store():
    reported = by_hand.after(PUTTING, PutEnded(by_hand.RESULT.digest, done=True))
    asked = events.Received(by_hand.request(by_hand.RESULT, 0, 2).message)
    assert commands_of(reported, asked) == [events.SendChunks(by_hand.RESULT, 0, 2)]
    assert commands_of(reported, by_hand.ack()) == [events.Settled(DEPOSITED)]


def test_dropping_a_task_stops_its_transfers():
    assert commands_of(FETCHING, by_hand.announcement(2)) == [StopTransfers()]
    assert commands_of(PUTTING, by_hand.announcement(2)) == [StopTransfers()]
    dropped = by_hand.after(PUTTING, by_hand.announcement(2))
    assert commands_of(dropped, PutEnded(by_hand.RESULT.digest, done=True)) == []
    assert commands_of(dropped, FetchEnded(by_hand.STATE.digest, ALL)) == []


def test_addresses_are_not_stored_in_snapshots():
    for session in (FETCHING, WORKING, PUTTING):
        assert "?1" not in session.snapshot.model_dump_json()
        assert "?1" not in repr(session)


def restored(session: Session, held: frozenset[str] = frozenset()) -> Session:
    """The session of a restarted and connected process."""
    memory = SessionSnapshot.model_validate_json(session.snapshot.model_dump_json())
    return by_hand.after(
        Session(by_hand.FEDERATION, by_hand.DEVICE, held=held),
        events.Connected(),
        events.SessionRestored(memory, {by_hand.STATE.digest: chunks_of(0b001)}),
    )


def test_a_device_killed_during_a_fetch_resumes_over_http():
    """Addresses are not stored: the device starts with chunks; its birth brings the task with new ones."""
    back = restored(FETCHING)
    assert commands_of(back, offered(generation=2)) == [by_hand.accepted(), fetch(2)]


def test_a_device_killed_during_an_upload_resumes_it():
    back = restored(PUTTING, held=frozenset({by_hand.RESULT.digest}))
    assert back.phase is SessionPhase.REPORTING
    assert commands_of(back, offered(generation=2)) == [put(2)]
    # The task is not sent again, so the update goes in chunks.
    late = commands_of(back, events.Tick(), now=RESEND_S + 1)
    assert [command.message for command in late] == [by_hand.update()]
