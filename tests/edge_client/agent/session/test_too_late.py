"""Results and answers that arrive too late for the session."""

import pytest

from edge_client.agent.session.events import Received, SendMessage, Settled, WorkDone, WorkFailed
from edge_client.agent.session.machine import SessionPhase, step
from schemas.errors import Reason
from tests.edge_client.agent.session import by_hand


def test_an_overtaken_update_counts_if_the_server_acknowledges_it():
    session = by_hand.after(
        by_hand.REPORTING, by_hand.announcement(2), Received(by_hand.task(2, state=by_hand.NEXT))
    )
    session, commands = step(session, by_hand.ack(), 0.0)
    assert commands == [Settled(by_hand.update())]
    assert session.task == by_hand.task(2, state=by_hand.NEXT)
    assert step(session, by_hand.ack(), 0.0) == (session, [])


def test_an_overtaken_and_refused_update_does_not_count():
    session = by_hand.after(by_hand.REPORTING, Received(by_hand.task(2, state=by_hand.NEXT)))
    (settled,) = step(session, by_hand.refusal(), 0.0)[1]
    assert settled.result == by_hand.update()
    assert settled.refusal is not None


def test_a_task_of_another_run_ends_the_wait_for_an_answer():
    session = by_hand.after(by_hand.REPORTING, Received(by_hand.task(run="run-2", state=by_hand.NEXT)))
    assert step(session, by_hand.ack(), 0.0) == (session, [])


@pytest.mark.parametrize("phase", ["idle", "fetching", "reporting", "settled"])
def test_the_result_of_unwanted_work_only_adds_its_blob(phase):
    stale = by_hand.update(blob=by_hand.NEXT)
    session, commands = step(by_hand.PHASES[phase], WorkDone(stale), 0.0)
    assert commands == []
    assert (session.phase, session.result) == (by_hand.PHASES[phase].phase, by_hand.PHASES[phase].result)
    assert by_hand.NEXT.digest in session.held


@pytest.mark.parametrize("number", [1, 3])
def test_the_result_of_another_round_is_ignored(number):
    session = by_hand.after(by_hand.WORKING, Received(by_hand.task(2)))
    assert session.phase is SessionPhase.WORKING
    session, commands = step(session, WorkDone(by_hand.update(number)), 0.0)
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [])


def test_the_result_of_another_run_is_ignored():
    session, commands = step(by_hand.WORKING, WorkDone(by_hand.update(run="run-0")), 0.0)
    assert (session.phase, commands) == (SessionPhase.WORKING, [])


@pytest.mark.parametrize("other", [by_hand.task(9), by_hand.task(attempt=2), by_hand.task(run="run-0")])
def test_the_failure_of_other_work_is_ignored(other):
    session, commands = step(by_hand.WORKING, WorkFailed(other, Reason.TASK_FAILED, ""), 0.0)
    assert (session.phase, commands) == (SessionPhase.WORKING, [])


def test_the_result_of_an_earlier_attempt_is_ignored_in_a_replanned_round():
    session = by_hand.after(by_hand.WORKING, Received(by_hand.task(attempt=2)))
    for event in (WorkDone(by_hand.update()), WorkFailed(by_hand.task(), Reason.TASK_FAILED, "")):
        late, commands = step(session, event, 0.0)
        assert (late.phase, late.result, commands) == (SessionPhase.WORKING, None, [])
    _, commands = step(session, WorkDone(by_hand.update(attempt=2)), 0.0)
    assert commands == [SendMessage(by_hand.update(attempt=2))]


def test_a_training_result_is_not_the_result_of_the_delivery_in_the_same_round():
    # The event of finished training was still queued when the delivery task arrived, with all blobs present.
    session = by_hand.after(by_hand.WORKING, Received(by_hand.deliver()))
    assert session.phase is SessionPhase.WORKING
    session, commands = step(session, WorkDone(by_hand.update()), 0.0)
    assert (session.phase, session.result, commands) == (SessionPhase.WORKING, None, [])


def test_a_late_acknowledgement_of_failed_training_does_not_settle_the_delivery():
    # The failure was reported twice and acknowledged twice; the second acknowledgement was late.
    failed = by_hand.after(by_hand.FAILED, by_hand.ack(digest=None))
    delivering = by_hand.after(failed, Received(by_hand.deliver()), WorkDone(by_hand.delivery()))
    assert delivering.phase is SessionPhase.REPORTING
    # Otherwise the delivery would never be sent again.
    assert step(delivering, by_hand.ack(digest=None), 0.0) == (delivering, [])
