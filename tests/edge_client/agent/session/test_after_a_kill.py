"""A new process resumes from the snapshot of a killed one."""

import pytest

from edge_client.agent.session.events import (
    BlobChecked,
    Connected,
    EpochReached,
    Received,
    RunEnded,
    SendChunks,
    SendMessage,
    SessionRestored,
    Settled,
    StartWork,
    Stopping,
    StopWork,
    WorkDone,
)
from edge_client.agent.session.machine import Session, SessionPhase, step
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.transport.chunk_transfer import VerifyBlob
from schemas.errors import Reason
from schemas.messages import BlobRequest, TaskReply
from tests.chunk_bits import chunks_of
from tests.edge_client.agent.session.by_hand import (
    DEVICE,
    FAILED,
    FEDERATION,
    FETCHING,
    IDLE,
    NEXT,
    PHASES,
    REPORTING,
    RESULT,
    SETTLED,
    SMALL,
    STATE,
    WORKING,
    accepted,
    ack,
    after,
    announcement,
    end,
    request,
    task,
    update,
)


def back(session: Session, *, held: frozenset[str] = frozenset(), present=None):
    """The session of a new process restored from the snapshot of `session`, and its first commands."""
    memory = SessionSnapshot.model_validate_json(session.snapshot.model_dump_json())
    fresh = after(Session(FEDERATION, DEVICE, held=held), Connected())
    return step(fresh, SessionRestored(memory, present or {}), 100.0)


HOLDS = frozenset({STATE.digest, RESULT.digest})


def test_a_result_is_sent_again_and_its_missing_chunks_on_request():
    session, commands = back(REPORTING, held=HOLDS)
    assert (session.phase, commands) == (SessionPhase.REPORTING, [SendMessage(update())])
    # The server offers the task again after the new birth and requests the missing chunks.
    session, commands = step(session, Received(task(deadline_s=5.0)), 100.0)
    assert commands == [SendMessage(update())]
    asked = BlobRequest(federation=FEDERATION, device=DEVICE, digest=RESULT.digest, first=1, count=2)
    session, commands = step(session, Received(asked), 100.0)
    assert commands == [SendChunks(RESULT, 1, 2)]
    session, commands = step(session, ack(), 100.0)
    assert commands == [Settled(update())]
    assert session.snapshot.task is None


def test_a_small_result_is_sent_again_with_its_bytes():
    small = after(WORKING, WorkDone(update(blob=SMALL)))
    _, commands = back(small, held=frozenset({SMALL.digest}))
    assert commands == [SendMessage(update(blob=SMALL)), SendChunks(SMALL, 0, 1)]


def test_a_failure_is_reported_again():
    session, commands = back(FAILED)
    assert session.phase is SessionPhase.REPORTING
    assert commands == [SendMessage(FAILED.result)]


def test_a_result_whose_blob_is_missing_is_computed_again():
    session, commands = back(REPORTING, held=frozenset({STATE.digest}))
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [StartWork(task())])


def test_work_restarts_without_a_new_offer():
    session, commands = back(WORKING, held=frozenset({STATE.digest}))
    assert (session.phase, commands) == (SessionPhase.WORKING, [StartWork(task())])
    # The offer after the new birth changes nothing; the announcement of a later round ends the work.
    assert step(session, Received(task()), 100.0)[1] == [accepted()]
    assert step(session, announcement(2), 100.0)[1] == [StopWork()]


def test_fetching_resumes_with_the_missing_chunks():
    session, commands = back(FETCHING, present={STATE.digest: chunks_of(0b011)})
    assert (session.phase, commands) == (SessionPhase.FETCHING, [request(STATE, 2, 1)])


def test_a_complete_but_unverified_blob_is_verified():
    session, commands = back(FETCHING, present={STATE.digest: chunks_of(0b111)})
    assert commands == [VerifyBlob(STATE)]
    assert step(session, BlobChecked(STATE.digest, True), 100.0)[1] == [StartWork(task())]


@pytest.mark.parametrize("phase", ["idle", "settled"])
def test_nothing_is_restored_of_a_settled_task(phase):
    session, commands = back(PHASES[phase], held=HOLDS)
    assert (session.phase, session.task, commands) == (SessionPhase.IDLE, None, [])


def test_the_end_of_a_run_that_an_earlier_process_joined_is_handled():
    session, _ = back(SETTLED)
    assert [type(command) for command in step(session, end(), 0.0)[1]] == [RunEnded]
    assert step(Session(FEDERATION, DEVICE), end(), 0.0)[1] == []


def test_a_task_older_than_the_restored_one_is_ignored():
    session, _ = back(after(IDLE, Received(task(2, attempt=5))))
    assert step(session, Received(task(1, attempt=4)), 0.0) == (session, [])


def test_a_snapshot_does_not_replace_the_current_task():
    late = SessionRestored(REPORTING.snapshot, {})
    other = after(IDLE, Received(task(2, state=NEXT)))
    session, commands = step(other, late, 0.0)
    assert (session.task, session.phase, commands) == (other.task, SessionPhase.FETCHING, [])


def test_only_the_latest_unfinished_runs_are_remembered():
    many = after(IDLE, *(announcement(1, run=f"run-{number:03}") for number in range(40)))
    assert many.snapshot.runs == tuple(f"run-{number:03}" for number in range(24, 40))


HELD = frozenset({STATE.digest})


def test_a_task_that_ends_two_processes_is_declined_and_never_begun_again():
    second, commands = back(WORKING, held=HELD)
    assert commands == [StartWork(task())]
    third, commands = back(second, held=HELD)
    reply = commands[0].message
    assert (len(commands), type(reply), third.phase) == (1, TaskReply, SessionPhase.IDLE)
    assert (reply.accepted, reply.reason) == (False, Reason.NO_MEMORY)
    assert "ended 2 times during this task" in reply.detail
    # The same offer again, because the answer was lost: also in a later process.
    fourth, _ = back(third, held=HELD)
    for session in (third, fourth):
        assert step(session, Received(task()), 100.0) == (session, [SendMessage(reply)])
    # Another task is another matter.
    begun, commands = step(third, Received(task(2)), 100.0)
    assert (begun.phase, commands) == (SessionPhase.WORKING, [accepted(2), StartWork(task(2))])


def test_a_task_that_gets_further_in_each_process_goes_on():
    session = WORKING
    for epoch in range(1, 6):
        session, commands = back(after(session, EpochReached(task(), epoch)), held=HELD)
        assert commands == [StartWork(task())]
    # It dies twice where it was.
    session, commands = back(after(session, EpochReached(task(), 5)), held=HELD)
    assert isinstance(commands[0].message, TaskReply)


def test_an_end_that_the_owner_wants_is_no_end_by_the_task():
    session = WORKING
    for _ in range(3):
        session, commands = back(after(session, Stopping()), held=HELD)
        assert commands == [StartWork(task())]


def test_the_count_ends_with_a_result():
    again, _ = back(WORKING, held=HELD)
    assert after(again, WorkDone(update())).snapshot.starts is None
