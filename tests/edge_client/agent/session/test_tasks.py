"""Repeated tasks and tasks that replace the current one."""

import pytest

from edge_client.agent.session.events import Received, SendMessage, StartWork, StopWork, WorkDone
from edge_client.agent.session.machine import SessionPhase, step
from schemas.strategy import TrainingPlan
from tests.edge_client.agent.session import by_hand


@pytest.mark.parametrize("phase", ["fetching", "working"])
def test_a_repeated_offer_is_accepted_again_and_changes_nothing(phase):
    again = by_hand.task(deadline_s=300.0)  # only the remaining time differs
    assert step(by_hand.PHASES[phase], Received(again), 1.0) == (by_hand.PHASES[phase], [by_hand.accepted()])


def test_a_repeated_offer_is_answered_with_an_existing_result():
    for session in (by_hand.REPORTING, by_hand.SETTLED):
        repeated, commands = step(session, Received(by_hand.task()), 7.0)
        assert commands == [SendMessage(by_hand.update())]
        assert repeated.phase is session.phase


@pytest.mark.parametrize("phase", by_hand.PHASES)
def test_a_newer_task_replaces_the_current_one(phase):
    session, commands = step(by_hand.PHASES[phase], Received(by_hand.task(2, state=by_hand.NEXT)), 0.0)
    assert (session.phase, session.task, session.result) == (
        SessionPhase.FETCHING,
        by_hand.task(2, state=by_hand.NEXT),
        None,
    )
    assert commands[:1] == [by_hand.accepted(2)]
    assert by_hand.request(by_hand.NEXT, 0, 3) in commands
    assert (StopWork() in commands) == (phase == "working")


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_an_older_task_is_ignored(phase):
    newer = by_hand.after(by_hand.PHASES[phase], Received(by_hand.task(3)))
    assert step(newer, Received(by_hand.task(2)), 0.0) == (newer, [])


@pytest.mark.parametrize(
    "ending", [by_hand.refusal(2), by_hand.announcement(3)], ids=["refused", "the round is over"]
)
def test_an_older_task_is_ignored_even_after_the_newer_one_ended(ending):
    # A late copy of the first offer, for which the server would refuse any result.
    session = by_hand.after(by_hand.WORKING, Received(by_hand.task(2)), WorkDone(by_hand.update(2)), ending)
    assert session.task is None
    assert step(session, Received(by_hand.task(1)), 0.0) == (session, [])


def test_delivery_follows_training_in_the_same_round():
    later = by_hand.deliver(state=by_hand.NEXT)
    session, commands = step(by_hand.WORKING, Received(later), 0.0)
    assert (session.task, StopWork() in commands) == (later, True)
    assert step(session, Received(by_hand.task()), 0.0) == (session, [])


def test_a_replanned_round_replaces_the_work_of_its_first_attempt():
    again = by_hand.task(attempt=2, training=TrainingPlan(seed=1))
    session, commands = step(by_hand.WORKING, Received(again), 0.0)
    assert session.task == again
    assert commands == [by_hand.accepted(attempt=2), StopWork(), StartWork(again)]


def test_a_replanned_round_replaces_even_identical_work():
    # The result of the first attempt would be refused as stale.
    session, commands = step(by_hand.REPORTING, Received(by_hand.task(attempt=2)), 0.0)
    assert (session.phase, session.result) == (SessionPhase.WORKING, None)
    assert commands == [by_hand.accepted(attempt=2), StartWork(by_hand.task(attempt=2))]


def test_the_attempt_alone_identifies_the_work():
    # The server builds each task once; repetitions differ only in the remaining time.
    other = by_hand.task(training=TrainingPlan(seed=1), state=by_hand.NEXT)
    assert step(by_hand.WORKING, Received(other), 0.0) == (by_hand.WORKING, [by_hand.accepted()])


@pytest.mark.parametrize("phase", by_hand.PHASES)
def test_a_task_of_another_run_replaces_the_current_one(phase):
    other = by_hand.task(1, run="run-2", state=by_hand.NEXT)
    session, commands = step(by_hand.PHASES[phase], Received(other), 0.0)
    assert session.task == other
    assert by_hand.accepted(1, "run-2") in commands
    assert "run-2" in session.runs
