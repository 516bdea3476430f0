"""Work that ends, and answers that arrive, too late for the session."""

import pytest

from edge_client.agent.session.events import Received, SendMessage, Settled, WorkDone, WorkFailed
from edge_client.agent.session.machine import SessionPhase, step
from schemas.values import Reason
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


def test_an_update_that_was_overtaken_still_counts_when_the_server_says_so():
    session = after(REPORTING, announcement(2), Received(task(2, state=NEXT)))
    session, commands = step(session, ack(), 0.0)
    assert commands == [Settled(update())]
    assert session.task == task(2, state=NEXT)
    assert step(session, ack(), 0.0) == (session, [])


def test_an_update_that_was_overtaken_and_refused_does_not_count():
    session = after(REPORTING, Received(task(2, state=NEXT)))
    (settled,) = step(session, refusal(), 0.0)[1]
    assert settled.result == update()
    assert settled.refusal is not None


def test_a_task_of_another_run_ends_the_wait_for_an_answer():
    session = after(REPORTING, Received(task(run="run-2", state=NEXT)))
    assert step(session, ack(), 0.0) == (session, [])


@pytest.mark.parametrize("phase", ["idle", "fetching", "reporting", "settled"])
def test_the_end_of_work_that_nobody_waits_for_changes_only_what_is_held(phase):
    stale = update(blob=NEXT)
    session, commands = step(PHASES[phase], WorkDone(stale), 0.0)
    assert commands == []
    assert (session.phase, session.result) == (PHASES[phase].phase, PHASES[phase].result)
    assert NEXT.digest in session.held


@pytest.mark.parametrize("number", [1, 3])
def test_the_end_of_another_rounds_work_is_no_result(number):
    session = after(WORKING, Received(task(2)))
    assert session.phase is SessionPhase.WORKING
    session, commands = step(session, WorkDone(update(number)), 0.0)
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [])


def test_the_end_of_another_runs_work_is_no_result():
    session, commands = step(WORKING, WorkDone(update(run="run-0")), 0.0)
    assert (session.phase, commands) == (SessionPhase.WORKING, [])


@pytest.mark.parametrize("other", [task(9), task(attempt=2), task(run="run-0")])
def test_the_failure_of_other_work_is_none(other):
    session, commands = step(WORKING, WorkFailed(other, Reason.TASK_FAILED, ""), 0.0)
    assert (session.phase, commands) == (SessionPhase.WORKING, [])


def test_the_end_of_an_earlier_attempt_is_no_result_of_the_same_round_planned_anew():
    session = after(WORKING, Received(task(attempt=2)))
    for event in (WorkDone(update()), WorkFailed(task(), Reason.TASK_FAILED, "")):
        late, commands = step(session, event, 0.0)
        assert (late.phase, late.result, commands) == (SessionPhase.WORKING, None, [])
    _, commands = step(session, WorkDone(update(attempt=2)), 0.0)
    assert commands == [SendMessage(update(attempt=2))]


def test_the_end_of_training_is_no_result_of_the_delivery_in_the_same_round():
    # The training's end lay in the inbox when the delivery task came, whose blobs were all there.
    session = after(WORKING, Received(deliver()))
    assert session.phase is SessionPhase.WORKING
    session, commands = step(session, WorkDone(update()), 0.0)
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [])


def test_an_acknowledgement_of_failed_training_does_not_settle_the_delivery_of_the_same_round():
    # The failure was said twice and acknowledged twice; the second acknowledgement came late.
    failed = after(FAILED, ack(digest=None))
    delivering = after(failed, Received(deliver()), WorkDone(delivery()))
    assert delivering.phase is SessionPhase.REPORTING
    # Else the delivery would never be said again.
    assert step(delivering, ack(digest=None), 0.0) == (delivering, [])
