"""A new process resumes from the snapshot of a killed one."""

import pytest

from edge_client.agent.session import events
from edge_client.agent.session.machine import Session, SessionPhase, step
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.transport.chunk_transfer import VerifyBlob
from schemas.errors import Reason
from schemas.messages import BlobRequest, TaskReply
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.session import by_hand


def back(session: Session, *, held: frozenset[str] = frozenset(), present=None):
    """The session of a new process restored from the snapshot of `session`, and its first commands."""
    memory = SessionSnapshot.model_validate_json(session.snapshot.model_dump_json())
    fresh = by_hand.after(Session(by_hand.FEDERATION, by_hand.DEVICE, held=held), events.Connected())
    return step(fresh, events.SessionRestored(memory, present or {}), 100.0)


HOLDS = frozenset({by_hand.STATE.digest, by_hand.RESULT.digest})


def test_a_result_is_sent_again_and_its_missing_chunks_on_request():
    session, commands = back(by_hand.REPORTING, held=HOLDS)
    assert (session.phase, commands) == (SessionPhase.REPORTING, [events.SendMessage(by_hand.update())])
    # The server offers the task again after the new birth and requests the missing chunks.
    session, commands = step(session, events.Received(by_hand.task(deadline_s=5.0)), 100.0)
    assert commands == [events.SendMessage(by_hand.update())]
    asked = BlobRequest(
        federation=by_hand.FEDERATION, device=by_hand.DEVICE, digest=by_hand.RESULT.digest, first=1, count=2
    )
    session, commands = step(session, events.Received(asked), 100.0)
    assert commands == [events.SendChunks(by_hand.RESULT, 1, 2)]
    session, commands = step(session, by_hand.ack(), 100.0)
    assert commands == [events.Settled(by_hand.update())]
    assert session.snapshot.task is None


def test_a_small_result_is_sent_again_with_its_bytes():
    small = by_hand.after(by_hand.WORKING, events.WorkDone(by_hand.update(blob=by_hand.SMALL)))
    _, commands = back(small, held=frozenset({by_hand.SMALL.digest}))
    assert commands == [
        events.SendMessage(by_hand.update(blob=by_hand.SMALL)),
        events.SendChunks(by_hand.SMALL, 0, 1),
    ]


def test_a_failure_is_reported_again():
    session, commands = back(by_hand.FAILED)
    assert session.phase is SessionPhase.REPORTING
    assert commands == [events.SendMessage(by_hand.FAILED.result)]


def test_a_result_whose_blob_is_missing_is_computed_again():
    session, commands = back(by_hand.REPORTING, held=frozenset({by_hand.STATE.digest}))
    assert (session.phase, session.result, commands) == (
        SessionPhase.WORKING,
        None,
        [events.StartWork(by_hand.task())],
    )


def test_work_restarts_without_a_new_offer():
    session, commands = back(by_hand.WORKING, held=frozenset({by_hand.STATE.digest}))
    assert (session.phase, commands) == (SessionPhase.WORKING, [events.StartWork(by_hand.task())])
    # The offer after the new birth changes nothing; the announcement of a later round ends the work.
    assert step(session, events.Received(by_hand.task()), 100.0)[1] == [by_hand.accepted()]
    assert step(session, by_hand.announcement(2), 100.0)[1] == [events.StopWork()]


def test_fetching_resumes_with_the_missing_chunks():
    session, commands = back(by_hand.FETCHING, present={by_hand.STATE.digest: chunks_of(0b011)})
    assert (session.phase, commands) == (SessionPhase.FETCHING, [by_hand.request(by_hand.STATE, 2, 1)])


def test_a_complete_but_unverified_blob_is_verified():
    session, commands = back(by_hand.FETCHING, present={by_hand.STATE.digest: chunks_of(0b111)})
    assert commands == [VerifyBlob(by_hand.STATE)]
    assert step(session, events.BlobChecked(by_hand.STATE.digest, True), 100.0)[1] == [
        events.StartWork(by_hand.task())
    ]


@pytest.mark.parametrize("phase", ["idle", "settled"])
def test_nothing_is_restored_of_a_settled_task(phase):
    session, commands = back(by_hand.PHASES[phase], held=HOLDS)
    assert (session.phase, session.task, commands) == (SessionPhase.IDLE, None, [])


def test_the_end_of_a_run_that_an_earlier_process_joined_is_handled():
    session, _ = back(by_hand.SETTLED)
    assert [type(command) for command in step(session, by_hand.end(), 0.0)[1]] == [events.RunEnded]
    assert step(Session(by_hand.FEDERATION, by_hand.DEVICE), by_hand.end(), 0.0)[1] == []


def test_a_task_older_than_the_restored_one_is_ignored():
    session, _ = back(by_hand.after(by_hand.IDLE, events.Received(by_hand.task(2, attempt=5))))
    assert step(session, events.Received(by_hand.task(1, attempt=4)), 0.0) == (session, [])


def test_a_snapshot_does_not_replace_the_current_task():
    late = events.SessionRestored(by_hand.REPORTING.snapshot, {})
    other = by_hand.after(by_hand.IDLE, events.Received(by_hand.task(2, state=by_hand.NEXT)))
    session, commands = step(other, late, 0.0)
    assert (session.task, session.phase, commands) == (other.task, SessionPhase.FETCHING, [])


def test_only_the_latest_unfinished_runs_are_remembered():
    many = by_hand.after(
        by_hand.IDLE, *(by_hand.announcement(1, run=f"run-{number:03}") for number in range(40))
    )
    assert many.snapshot.runs == tuple(f"run-{number:03}" for number in range(24, 40))


HELD = frozenset({by_hand.STATE.digest})


def test_a_task_that_ends_two_processes_is_declined_and_never_begun_again():
    second, commands = back(by_hand.WORKING, held=HELD)
    assert commands == [events.StartWork(by_hand.task())]
    third, commands = back(second, held=HELD)
    reply = commands[0].message
    assert (len(commands), type(reply), third.phase) == (1, TaskReply, SessionPhase.IDLE)
    assert (reply.accepted, reply.reason) == (False, Reason.NO_MEMORY)
    assert "ended 2 times during this task" in reply.detail
    # The same offer again, because the answer was lost: also in a later process.
    fourth, _ = back(third, held=HELD)
    for session in (third, fourth):
        assert step(session, events.Received(by_hand.task()), 100.0) == (session, [events.SendMessage(reply)])
    # Another task is another matter.
    begun, commands = step(third, events.Received(by_hand.task(2)), 100.0)
    assert (begun.phase, commands) == (
        SessionPhase.WORKING,
        [by_hand.accepted(2), events.StartWork(by_hand.task(2))],
    )


def test_a_task_that_gets_further_in_each_process_goes_on():
    session = by_hand.WORKING
    for epoch in range(1, 6):
        session, commands = back(
            by_hand.after(session, events.EpochReached(by_hand.task(), epoch)), held=HELD
        )
        assert commands == [events.StartWork(by_hand.task())]
    # It dies twice where it was.
    session, commands = back(by_hand.after(session, events.EpochReached(by_hand.task(), 5)), held=HELD)
    assert isinstance(commands[0].message, TaskReply)


def test_an_end_that_the_owner_wants_is_no_end_by_the_task():
    session = by_hand.WORKING
    for _ in range(3):
        session, commands = back(by_hand.after(session, events.Stopping()), held=HELD)
        assert commands == [events.StartWork(by_hand.task())]


def test_the_count_ends_with_a_result():
    again, _ = back(by_hand.WORKING, held=HELD)
    assert by_hand.after(again, events.WorkDone(by_hand.update())).snapshot.starts is None
