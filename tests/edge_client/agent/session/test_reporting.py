"""A result is repeated until it is answered, and its blob is sent on request."""

import pytest

from edge_client.agent.session.events import (
    BlobsDiscarded,
    ChunkBytesLimited,
    Received,
    SendChunks,
    SendMessage,
    Settled,
    StartWork,
    Tick,
    WorkDone,
    WorkFailed,
)
from edge_client.agent.session.machine import RESEND_S, SessionPhase, step
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, TaskReply
from tests.edge_client.agent.session.by_hand import (
    CHUNK,
    DEVICE,
    FAILED,
    FEDERATION,
    NEXT,
    PHASES,
    REPORTING,
    RESULT,
    SENT,
    SETTLED,
    SMALL,
    STATE,
    WORKING,
    accepted,
    ack,
    after,
    deliver,
    delivery,
    refusal,
    task,
    update,
)


def test_a_result_is_announced_and_its_blob_is_sent_only_on_request():
    session, commands = step(WORKING, WorkDone(update()), 0.0)
    assert session.phase is SessionPhase.REPORTING
    assert commands == [SendMessage(update())]
    assert RESULT.digest in session.held


def test_a_small_result_is_sent_with_its_announcement():
    commands = step(WORKING, WorkDone(update(blob=SMALL)), 0.0)[1]
    assert commands == [SendMessage(update(blob=SMALL)), SendChunks(SMALL, 0, 1)]


def test_a_result_is_repeated_until_it_is_answered():
    assert step(REPORTING, Tick(), RESEND_S - 0.1)[1] == []
    repeated, commands = step(REPORTING, Tick(), RESEND_S)
    assert commands == [SendMessage(update())]
    # The interval doubles: 5 s, then another 10 s.
    assert step(repeated, Tick(), 3 * RESEND_S - 0.1)[1] == []
    assert step(repeated, Tick(), 3 * RESEND_S)[1] == [SendMessage(update())]
    assert step(after(repeated, ack()), Tick(), 9 * RESEND_S)[1] == []


def test_an_acknowledgement_settles_the_result_and_keeps_it():
    session, commands = step(REPORTING, ack(), 0.0)
    assert (session.phase, session.result) == (SessionPhase.IDLE, update())
    assert commands == [Settled(update())]


@pytest.mark.parametrize(
    "answer",
    [
        ack(2),
        ack(run="run-0"),
        ack(digest=NEXT.digest),
        ack(digest=None),
        refusal(2),
        refusal(digest=NEXT.digest),
        refusal(digest=None),
    ],
)
def test_an_answer_to_something_else_settles_nothing(answer):
    assert step(REPORTING, answer, 0.0) == (REPORTING, [])


@pytest.mark.parametrize("phase", ["idle", "fetching", "working"])
@pytest.mark.parametrize("answer", [ack(), refusal()])
def test_an_answer_before_there_is_a_result_changes_nothing(phase, answer):
    assert step(PHASES[phase], answer, 0.0) == (PHASES[phase], [])


def test_a_second_acknowledgement_changes_nothing():
    assert step(SETTLED, ack(), 0.0) == (SETTLED, [])


def test_a_refusal_settles_and_discards_the_result():
    session, commands = step(REPORTING, refusal(), 0.0)
    assert (session.phase, session.task, session.result) == (SessionPhase.IDLE, None, None)
    assert commands == [Settled(update(), refusal().message)]


def test_a_delivery_is_settled_by_an_acknowledgement_without_a_digest():
    session = after(SETTLED, Received(deliver()), WorkDone(delivery()))
    assert session.phase is SessionPhase.REPORTING
    session, commands = step(session, ack(2, digest=None), 0.0)
    assert (session.phase, commands) == (SessionPhase.IDLE, [Settled(delivery())])


def test_failed_work_is_reported_as_a_declined_task():
    session, commands = step(WORKING, WorkFailed(task(), Reason.TASK_FAILED, "x" * 900), 0.0)
    declined = TaskReply(
        **SENT, round=1, attempt=1, accepted=False, reason=Reason.TASK_FAILED, detail="x" * 500
    )
    assert (session.phase, commands) == (SessionPhase.REPORTING, [SendMessage(declined)])


def test_failed_work_is_reported_until_the_server_acknowledges_it():
    assert step(FAILED, Tick(), RESEND_S)[1] == [SendMessage(FAILED.result)]
    session, commands = step(FAILED, ack(digest=None), 0.0)
    assert (session.phase, session.task, commands) == (SessionPhase.IDLE, None, [Settled(FAILED.result)])
    assert step(session, Tick(), 9 * RESEND_S)[1] == []


def test_acknowledged_failed_work_is_retried_when_it_is_offered_again():
    session, commands = step(after(FAILED, ack(digest=None)), Received(task()), 0.0)
    assert commands == [accepted(), StartWork(task())]
    assert session.phase is SessionPhase.WORKING


def test_the_blob_of_the_result_is_sent_on_request():
    requested = BlobRequest(federation=FEDERATION, device=DEVICE, digest=RESULT.digest, first=1, count=2)
    for session in (REPORTING, SETTLED):
        assert step(session, Received(requested), 0.0) == (session, [SendChunks(RESULT, 1, 2)])


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("digest", [STATE.digest, NEXT.digest])
def test_no_other_blob_is_ever_sent(phase, digest):
    requested = BlobRequest(federation=FEDERATION, device=DEVICE, digest=digest, first=0, count=1)
    answer = Refusal(federation=FEDERATION, device=DEVICE, reason=Reason.UNKNOWN_BLOB, digest=digest)
    assert step(PHASES[phase], Received(requested), 0.0) == (PHASES[phase], [SendMessage(answer)])


def test_a_waiting_result_is_offered_in_chunks_that_fit_the_limit():
    session, commands = step(REPORTING, ChunkBytesLimited(CHUNK // 2), 0.0)
    assert (session.result.blob.chunk_bytes, commands) == (CHUNK // 2, [])
    assert step(REPORTING, ChunkBytesLimited(CHUNK), 0.0) == (REPORTING, [])
    assert step(WORKING, ChunkBytesLimited(1), 0.0) == (WORKING, [])


def test_a_discarded_blob_is_fetched_again_with_the_next_task():
    session, commands = step(SETTLED, BlobsDiscarded(frozenset()), 0.0)
    assert (session.held, commands) == (frozenset(), [])
    assert after(SETTLED, Received(task(2))).phase is SessionPhase.WORKING
    assert after(session, Received(task(2))).phase is SessionPhase.FETCHING
