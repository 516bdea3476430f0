"""The same task again, and other tasks."""

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
def test_the_same_offer_again_is_accepted_again_and_changes_nothing(phase):
    again = task(deadline_s=300.0)  # only the time that is left differs
    assert step(PHASES[phase], Received(again), 1.0) == (PHASES[phase], [accepted()])


def test_the_same_offer_again_is_answered_with_the_result_where_there_is_one():
    for session in (REPORTING, SETTLED):
        repeated, commands = step(session, Received(task()), 7.0)
        assert commands == [SendMessage(update())]
        assert repeated.phase is session.phase


@pytest.mark.parametrize("phase", PHASES)
def test_a_newer_task_replaces_whatever_was_there(phase):
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
def test_an_older_task_is_ignored_also_after_the_end_of_the_newer_one(ending):
    # A late copy of the first offer, for which the server would refuse any result.
    session = after(WORKING, Received(task(2)), WorkDone(update(2)), ending)
    assert session.task is None
    assert step(session, Received(task(1)), 0.0) == (session, [])


def test_delivering_comes_after_training_in_the_same_round():
    later = deliver(state=NEXT)
    session, commands = step(WORKING, Received(later), 0.0)
    assert (session.task, StopWork() in commands) == (later, True)
    assert step(session, Received(task()), 0.0) == (session, [])


def test_a_round_planned_anew_replaces_the_work_of_its_first_attempt():
    again = task(attempt=2, training=TrainingPlan(seed=1))
    session, commands = step(WORKING, Received(again), 0.0)
    assert session.task == again
    assert commands == [accepted(attempt=2), StopWork(), StartWork(again)]


def test_a_round_planned_anew_with_the_very_same_work_replaces_it_too():
    # The result of the first attempt would be refused as stale.
    session, commands = step(REPORTING, Received(task(attempt=2)), 0.0)
    assert (session.phase, session.result) == (SessionPhase.WORKING, None)
    assert commands == [accepted(attempt=2), StartWork(task(attempt=2))]


def test_the_attempt_alone_says_whether_it_is_the_same_work():
    # The server makes each task once; what it repeats differs in the time that is left, and in nothing else.
    other = task(training=TrainingPlan(seed=1), state=NEXT)
    assert step(WORKING, Received(other), 0.0) == (WORKING, [accepted()])


@pytest.mark.parametrize("phase", PHASES)
def test_a_task_of_another_run_replaces_that_of_this_one(phase):
    other = task(1, run="run-2", state=NEXT)
    session, commands = step(PHASES[phase], Received(other), 0.0)
    assert session.task == other
    assert accepted(1, "run-2") in commands
    assert "run-2" in session.runs
