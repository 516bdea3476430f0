"""Repeated tasks and tasks that replace the current one."""

import pytest

from edge_client.agent.session.events import Received, SendMessage, StartWork, StopWork, WorkDone
from edge_client.agent.session.machine import SessionPhase, step
from schemas.strategy import TrainingPlan
from tests.edge_client.agent.session.by_hand import (
    NEXT,
    PHASES,
    REPORTING,
    SETTLED,
    WORKING,
    accepted,
    after,
    announcement,
    deliver,
    refusal,
    request,
    task,
    update,
)


@pytest.mark.parametrize("phase", ["fetching", "working"])
def test_a_repeated_offer_is_accepted_again_and_changes_nothing(phase):
    again = task(deadline_s=300.0)  # only the remaining time differs
    assert step(PHASES[phase], Received(again), 1.0) == (PHASES[phase], [accepted()])


def test_a_repeated_offer_is_answered_with_an_existing_result():
    for session in (REPORTING, SETTLED):
        repeated, commands = step(session, Received(task()), 7.0)
        assert commands == [SendMessage(update())]
        assert repeated.phase is session.phase


@pytest.mark.parametrize("phase", PHASES)
def test_a_newer_task_replaces_the_current_one(phase):
    session, commands = step(PHASES[phase], Received(task(2, state=NEXT)), 0.0)
    assert (session.phase, session.task, session.result) == (SessionPhase.FETCHING, task(2, state=NEXT), None)
    assert commands[:1] == [accepted(2)]
    assert request(NEXT, 0, 3) in commands
    assert (StopWork() in commands) == (phase == "working")


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_an_older_task_is_ignored(phase):
    newer = after(PHASES[phase], Received(task(3)))
    assert step(newer, Received(task(2)), 0.0) == (newer, [])


@pytest.mark.parametrize("ending", [refusal(2), announcement(3)], ids=["refused", "the round is over"])
def test_an_older_task_is_ignored_even_after_the_newer_one_ended(ending):
    # A late copy of the first offer, for which the server would refuse any result.
    session = after(WORKING, Received(task(2)), WorkDone(update(2)), ending)
    assert session.task is None
    assert step(session, Received(task(1)), 0.0) == (session, [])


def test_delivery_follows_training_in_the_same_round():
    later = deliver(state=NEXT)
    session, commands = step(WORKING, Received(later), 0.0)
    assert (session.task, StopWork() in commands) == (later, True)
    assert step(session, Received(task()), 0.0) == (session, [])


def test_a_replanned_round_replaces_the_work_of_its_first_attempt():
    again = task(attempt=2, training=TrainingPlan(seed=1))
    session, commands = step(WORKING, Received(again), 0.0)
    assert session.task == again
    assert commands == [accepted(attempt=2), StopWork(), StartWork(again)]


def test_a_replanned_round_replaces_even_identical_work():
    # The result of the first attempt would be refused as stale.
    session, commands = step(REPORTING, Received(task(attempt=2)), 0.0)
    assert (session.phase, session.result) == (SessionPhase.WORKING, None)
    assert commands == [accepted(attempt=2), StartWork(task(attempt=2))]


def test_the_attempt_alone_identifies_the_work():
    # The server builds each task once; repetitions differ only in the remaining time.
    other = task(training=TrainingPlan(seed=1), state=NEXT)
    assert step(WORKING, Received(other), 0.0) == (WORKING, [accepted()])


@pytest.mark.parametrize("phase", PHASES)
def test_a_task_of_another_run_replaces_the_current_one(phase):
    other = task(1, run="run-2", state=NEXT)
    session, commands = step(PHASES[phase], Received(other), 0.0)
    assert session.task == other
    assert accepted(1, "run-2") in commands
    assert "run-2" in session.runs
