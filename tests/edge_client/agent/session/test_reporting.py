"""A result is repeated until it is answered, and its blob is sent on request."""

import pytest

from edge_client.agent.session import events
from edge_client.agent.session.machine import RESEND_S, SessionPhase, step
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, TaskReply
from tests.edge_client.agent.session import by_hand


def test_a_result_is_announced_and_its_blob_is_sent_only_on_request():
    session, commands = step(by_hand.WORKING, events.WorkDone(by_hand.update()), 0.0)
    assert session.phase is SessionPhase.REPORTING
    assert commands == [events.SendMessage(by_hand.update())]
    assert by_hand.RESULT.digest in session.held


def test_a_small_result_is_sent_with_its_announcement():
    commands = step(by_hand.WORKING, events.WorkDone(by_hand.update(blob=by_hand.SMALL)), 0.0)[1]
    assert commands == [
        events.SendMessage(by_hand.update(blob=by_hand.SMALL)),
        events.SendChunks(by_hand.SMALL, 0, 1),
    ]


def test_a_result_is_repeated_until_it_is_answered():
    assert step(by_hand.REPORTING, events.Tick(), RESEND_S - 0.1)[1] == []
    repeated, commands = step(by_hand.REPORTING, events.Tick(), RESEND_S)
    assert commands == [events.SendMessage(by_hand.update())]
    # The interval doubles: 5 s, then another 10 s.
    assert step(repeated, events.Tick(), 3 * RESEND_S - 0.1)[1] == []
    assert step(repeated, events.Tick(), 3 * RESEND_S)[1] == [events.SendMessage(by_hand.update())]
    assert step(by_hand.after(repeated, by_hand.ack()), events.Tick(), 9 * RESEND_S)[1] == []


def test_an_acknowledgement_settles_the_result_and_keeps_it():
    session, commands = step(by_hand.REPORTING, by_hand.ack(), 0.0)
    assert (session.phase, session.result) == (SessionPhase.IDLE, by_hand.update())
    assert commands == [events.Settled(by_hand.update())]


@pytest.mark.parametrize(
    "answer",
    [
        by_hand.ack(2),
        by_hand.ack(run="run-0"),
        by_hand.ack(digest=by_hand.NEXT.digest),
        by_hand.ack(digest=None),
        by_hand.refusal(2),
        by_hand.refusal(digest=by_hand.NEXT.digest),
        by_hand.refusal(digest=None),
    ],
)
def test_an_answer_to_something_else_settles_nothing(answer):
    assert step(by_hand.REPORTING, answer, 0.0) == (by_hand.REPORTING, [])


@pytest.mark.parametrize("phase", ["idle", "fetching", "working"])
@pytest.mark.parametrize("answer", [by_hand.ack(), by_hand.refusal()])
def test_an_answer_before_there_is_a_result_changes_nothing(phase, answer):
    assert step(by_hand.PHASES[phase], answer, 0.0) == (by_hand.PHASES[phase], [])


def test_a_second_acknowledgement_changes_nothing():
    assert step(by_hand.SETTLED, by_hand.ack(), 0.0) == (by_hand.SETTLED, [])


def test_a_refusal_settles_and_discards_the_result():
    session, commands = step(by_hand.REPORTING, by_hand.refusal(), 0.0)
    assert (session.phase, session.task, session.result) == (SessionPhase.IDLE, None, None)
    assert commands == [events.Settled(by_hand.update(), by_hand.refusal().message)]


def test_a_delivery_is_settled_by_an_acknowledgement_without_a_digest():
    session = by_hand.after(
        by_hand.SETTLED, events.Received(by_hand.deliver()), events.WorkDone(by_hand.delivery())
    )
    assert session.phase is SessionPhase.REPORTING
    session, commands = step(session, by_hand.ack(2, digest=None), 0.0)
    assert (session.phase, commands) == (SessionPhase.IDLE, [events.Settled(by_hand.delivery())])


def test_failed_work_is_reported_as_a_declined_task():
    session, commands = step(
        by_hand.WORKING, events.WorkFailed(by_hand.task(), Reason.TASK_FAILED, "x" * 900), 0.0
    )
    declined = TaskReply(
        **by_hand.SENT, round=1, attempt=1, accepted=False, reason=Reason.TASK_FAILED, detail="x" * 500
    )
    assert (session.phase, commands) == (SessionPhase.REPORTING, [events.SendMessage(declined)])


def test_failed_work_is_reported_until_the_server_acknowledges_it():
    assert step(by_hand.FAILED, events.Tick(), RESEND_S)[1] == [events.SendMessage(by_hand.FAILED.result)]
    session, commands = step(by_hand.FAILED, by_hand.ack(digest=None), 0.0)
    assert (session.phase, session.task, commands) == (
        SessionPhase.IDLE,
        None,
        [events.Settled(by_hand.FAILED.result)],
    )
    assert step(session, events.Tick(), 9 * RESEND_S)[1] == []


def test_acknowledged_failed_work_is_retried_when_it_is_offered_again():
    session, commands = step(
        by_hand.after(by_hand.FAILED, by_hand.ack(digest=None)), events.Received(by_hand.task()), 0.0
    )
    assert commands == [by_hand.accepted(), events.StartWork(by_hand.task())]
    assert session.phase is SessionPhase.WORKING


def test_the_blob_of_the_result_is_sent_on_request():
    requested = BlobRequest(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, digest=by_hand.RESULT.digest, first=1, count=2
    )
    for session in (by_hand.REPORTING, by_hand.SETTLED):
        assert step(session, events.Received(requested), 0.0) == (
            session,
            [events.SendChunks(by_hand.RESULT, 1, 2)],
        )


@pytest.mark.parametrize("phase", by_hand.PHASES)
@pytest.mark.parametrize("digest", [by_hand.STATE.digest, by_hand.NEXT.digest])
def test_no_other_blob_is_ever_sent(phase, digest):
    requested = BlobRequest(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, digest=digest, first=0, count=1
    )
    answer = Refusal(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, reason=Reason.UNKNOWN_BLOB, digest=digest
    )
    assert step(by_hand.PHASES[phase], events.Received(requested), 0.0) == (
        by_hand.PHASES[phase],
        [events.SendMessage(answer)],
    )


def test_a_waiting_result_is_offered_in_chunks_that_fit_the_limit():
    session, commands = step(by_hand.REPORTING, events.ChunkBytesLimited(by_hand.CHUNK // 2), 0.0)
    assert (session.result.blob.chunk_bytes, commands) == (by_hand.CHUNK // 2, [])
    assert step(by_hand.REPORTING, events.ChunkBytesLimited(by_hand.CHUNK), 0.0) == (by_hand.REPORTING, [])
    assert step(by_hand.WORKING, events.ChunkBytesLimited(1), 0.0) == (by_hand.WORKING, [])


def test_a_discarded_blob_is_fetched_again_with_the_next_task():
    session, commands = step(by_hand.SETTLED, events.BlobsDiscarded(frozenset()), 0.0)
    assert (session.held, commands) == (frozenset(), [])
    assert by_hand.after(by_hand.SETTLED, events.Received(by_hand.task(2))).phase is SessionPhase.WORKING
    assert by_hand.after(session, events.Received(by_hand.task(2))).phase is SessionPhase.FETCHING
