"""Results and answers that arrive too late for the session."""

import pytest

from edge_client.agent.session.events import Received, SendMessage, Settled, WorkDone, WorkFailed
from edge_client.agent.session.machine import SessionPhase, step
from schemas.errors import Reason
from tests.edge_client.agent.session.by_hand import (
    FAILED,
    NEXT,
    PHASES,
    REPORTING,
    WORKING,
    ack,
    after,
    announcement,
    deliver,
    delivery,
    refusal,
    task,
    update,
)


def test_an_overtaken_update_counts_if_the_server_acknowledges_it():
    session = after(REPORTING, announcement(2), Received(task(2, state=NEXT)))
    session, commands = step(session, ack(), 0.0)
    assert commands == [Settled(update())]
    assert session.task == task(2, state=NEXT)
    assert step(session, ack(), 0.0) == (session, [])


def test_an_overtaken_and_refused_update_does_not_count():
    session = after(REPORTING, Received(task(2, state=NEXT)))
    (settled,) = step(session, refusal(), 0.0)[1]
    assert settled.result == update()
    assert settled.refusal is not None


def test_a_task_of_another_run_ends_the_wait_for_an_answer():
    session = after(REPORTING, Received(task(run="run-2", state=NEXT)))
    assert step(session, ack(), 0.0) == (session, [])


@pytest.mark.parametrize("phase", ["idle", "fetching", "reporting", "settled"])
def test_the_result_of_unwanted_work_only_adds_its_blob(phase):
    stale = update(blob=NEXT)
    session, commands = step(PHASES[phase], WorkDone(stale), 0.0)
    assert commands == []
    assert (session.phase, session.result) == (PHASES[phase].phase, PHASES[phase].result)
    assert NEXT.digest in session.held


@pytest.mark.parametrize("number", [1, 3])
def test_the_result_of_another_round_is_ignored(number):
    session = after(WORKING, Received(task(2)))
    assert session.phase is SessionPhase.WORKING
    session, commands = step(session, WorkDone(update(number)), 0.0)
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [])


def test_the_result_of_another_run_is_ignored():
    session, commands = step(WORKING, WorkDone(update(run="run-0")), 0.0)
    assert (session.phase, commands) == (SessionPhase.WORKING, [])


@pytest.mark.parametrize("other", [task(9), task(attempt=2), task(run="run-0")])
def test_the_failure_of_other_work_is_ignored(other):
    session, commands = step(WORKING, WorkFailed(other, Reason.TASK_FAILED, ""), 0.0)
    assert (session.phase, commands) == (SessionPhase.WORKING, [])


def test_the_result_of_an_earlier_attempt_is_ignored_in_a_replanned_round():
    session = after(WORKING, Received(task(attempt=2)))
    for event in (WorkDone(update()), WorkFailed(task(), Reason.TASK_FAILED, "")):
        late, commands = step(session, event, 0.0)
        assert (late.phase, late.result, commands) == (SessionPhase.WORKING, None, [])
    _, commands = step(session, WorkDone(update(attempt=2)), 0.0)
    assert commands == [SendMessage(update(attempt=2))]


def test_a_training_result_is_not_the_result_of_the_delivery_in_the_same_round():
    # The event of finished training was still queued when the delivery task arrived, with all blobs present.
    session = after(WORKING, Received(deliver()))
    assert session.phase is SessionPhase.WORKING
    session, commands = step(session, WorkDone(update()), 0.0)
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [])


def test_a_late_acknowledgement_of_failed_training_does_not_settle_the_delivery():
    # The failure was reported twice and acknowledged twice; the second acknowledgement was late.
    failed = after(FAILED, ack(digest=None))
    delivering = after(failed, Received(deliver()), WorkDone(delivery()))
    assert delivering.phase is SessionPhase.REPORTING
    # Otherwise the delivery would never be sent again.
    assert step(delivering, ack(digest=None), 0.0) == (delivering, [])
