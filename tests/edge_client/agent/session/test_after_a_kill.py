"""A new process resumes from the snapshot of a killed one."""

import pytest

from edge_client.agent.session.events import (
    BlobChecked,
    Connected,
    Received,
    RunEnded,
    SendChunks,
    SendMessage,
    SessionRestored,
    Settled,
    StartWork,
    StopWork,
    WorkDone,
)
from edge_client.agent.session.machine import Session, SessionPhase, step
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.transport.chunk_transfer import VerifyBlob
from schemas.messages import BlobRequest
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
    """The session of a new process that finds what `session` left on disk, and its first commands."""
    memory = SessionSnapshot.model_validate_json(session.snapshot.model_dump_json())
    fresh = after(Session(FEDERATION, DEVICE, held=held), Connected())
    return step(fresh, SessionRestored(memory, present or {}), 100.0)


HOLDS = frozenset({STATE.digest, RESULT.digest})


def test_a_result_is_told_again_and_its_missing_chunks_are_given():
    session, commands = back(REPORTING, held=HOLDS)
    assert (session.phase, commands) == (SessionPhase.REPORTING, [SendMessage(update())])
    # The server has offered the task again on the new birth, and asks for what it lacks.
    session, commands = step(session, Received(task(deadline_s=5.0)), 100.0)
    assert commands == [SendMessage(update())]
    asked = BlobRequest(federation=FEDERATION, device=DEVICE, digest=RESULT.digest, first=1, count=2)
    session, commands = step(session, Received(asked), 100.0)
    assert commands == [SendChunks(RESULT, 1, 2)]
    session, commands = step(session, ack(), 100.0)
    assert commands == [Settled(update())]
    assert session.snapshot.task is None


def test_a_small_result_is_told_again_with_its_bytes():
    small = after(WORKING, WorkDone(update(blob=SMALL)))
    _, commands = back(small, held=frozenset({SMALL.digest}))
    assert commands == [SendMessage(update(blob=SMALL)), SendChunks(SMALL, 0, 1)]


def test_a_failure_is_told_again():
    session, commands = back(FAILED)
    assert session.phase is SessionPhase.REPORTING
    assert commands == [SendMessage(FAILED.result)]


def test_a_result_whose_blob_is_gone_is_made_again():
    session, commands = back(REPORTING, held=frozenset({STATE.digest}))
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [StartWork(task())])


def test_work_begins_again_by_itself():
    session, commands = back(WORKING, held=frozenset({STATE.digest}))
    assert (session.phase, commands) == (SessionPhase.WORKING, [StartWork(task())])
    # The offer on the new birth changes nothing, the announcement of a later round ends it.
    assert step(session, Received(task()), 100.0)[1] == [accepted()]
    assert step(session, announcement(2), 100.0)[1] == [StopWork()]


def test_fetching_goes_on_with_the_chunks_that_are_missing():
    session, commands = back(FETCHING, present={STATE.digest: 0b011})
    assert (session.phase, commands) == (SessionPhase.FETCHING, [request(STATE, 2, 1)])


def test_a_blob_that_was_complete_and_not_yet_checked_is_checked():
    session, commands = back(FETCHING, present={STATE.digest: 0b111})
    assert commands == [VerifyBlob(STATE)]
    assert step(session, BlobChecked(STATE.digest, True), 100.0)[1] == [StartWork(task())]


@pytest.mark.parametrize("phase", ["idle", "settled"])
def test_of_a_task_that_is_settled_nothing_is_remembered(phase):
    session, commands = back(PHASES[phase], held=HOLDS)
    assert (session.phase, session.task, commands) == (SessionPhase.IDLE, None, [])


def test_the_end_of_a_run_is_understood_that_an_earlier_process_took_part_in():
    session, _ = back(SETTLED)
    assert [type(command) for command in step(session, end(), 0.0)[1]] == [RunEnded]
    assert step(Session(FEDERATION, DEVICE), end(), 0.0)[1] == []


def test_a_task_from_before_the_one_at_hand_stays_unwanted():
    session, _ = back(after(IDLE, Received(task(2, attempt=5))))
    assert step(session, Received(task(1, attempt=4)), 0.0) == (session, [])


def test_a_memory_does_not_displace_a_task_at_hand():
    late = SessionRestored(REPORTING.snapshot, {})
    other = after(IDLE, Received(task(2, state=NEXT)))
    session, commands = step(other, late, 0.0)
    assert (session.task, session.phase, commands) == (other.task, SessionPhase.FETCHING, [])


def test_runs_that_never_end_are_not_all_remembered():
    many = after(IDLE, *(announcement(1, run=f"run-{number:03}") for number in range(40)))
    assert many.snapshot.runs == tuple(f"run-{number:03}" for number in range(24, 40))
