"""The next round begins, or the run ends."""

from dataclasses import replace

import pytest

from edge_client.agent.session.events import Received, RunEnded, StartWork, StopWork, Tick
from edge_client.agent.session.machine import SessionPhase, step
from tests.edge_client.agent.session import by_hand


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_the_announcement_of_a_later_round_ends_the_task(phase):
    session, commands = step(by_hand.PHASES[phase], by_hand.announcement(2), 0.0)
    assert (session.phase, session.task, session.result, session.receiving) == (
        SessionPhase.IDLE,
        None,
        None,
        {},
    )
    assert commands == ([StopWork()] if phase == "working" else [])
    assert step(session, Tick(), 100.0)[1] == []


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_a_task_of_an_earlier_round_continues_while_its_result_still_counts(phase):
    # The task is of round 1.
    session, commands = step(by_hand.PHASES[phase], by_hand.announcement(4, oldest=1), 0.0)
    assert (session, commands) == (by_hand.PHASES[phase], [])
    session, _ = step(session, by_hand.announcement(5, oldest=2), 0.0)
    assert session.task is None


@pytest.mark.parametrize("phase", by_hand.PHASES)
@pytest.mark.parametrize(
    "received", [by_hand.announcement(1), by_hand.announcement(0), by_hand.announcement(5, run="run-2")]
)
def test_an_announcement_of_the_current_round_or_another_run_only_records_the_run(phase, received):
    session = by_hand.PHASES[phase]
    known = replace(session, runs=session.runs | {received.message.run})
    assert step(session, received, 0.0) == (known, [])


@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_the_end_of_the_run_ends_the_task_and_is_reported(phase):
    session, commands = step(by_hand.PHASES[phase], by_hand.end(), 0.0)
    assert (session.phase, session.task, session.runs) == (SessionPhase.IDLE, None, frozenset())
    assert session.ended_runs == {by_hand.RUN}
    assert commands == [*([StopWork()] if phase == "working" else []), RunEnded(by_hand.end().message)]
    assert step(session, by_hand.end(), 0.0) == (session, [])


def test_the_end_of_an_unknown_run_is_ignored():
    # The retained end message of a run that finished before this device joined.
    assert step(by_hand.IDLE, by_hand.end(), 0.0) == (by_hand.IDLE, [])
    assert step(by_hand.WORKING, by_hand.end("run-0"), 0.0) == (by_hand.WORKING, [])


def test_the_end_of_a_run_that_never_selected_the_device_is_reported():
    waiting = by_hand.after(by_hand.IDLE, by_hand.announcement(1))
    session, commands = step(waiting, by_hand.end(), 0.0)
    assert (session.phase, session.runs, commands) == (
        SessionPhase.IDLE,
        frozenset(),
        [RunEnded(by_hand.end().message)],
    )


def test_the_end_of_a_run_is_reported_once_despite_a_late_announcement():
    session = by_hand.after(by_hand.WORKING, by_hand.end(), by_hand.announcement(1))
    assert step(session, by_hand.end(), 0.0) == (session, [])


@pytest.mark.parametrize(
    "late", [by_hand.task(), by_hand.task(2, state=by_hand.NEXT), by_hand.deliver(attempt=9)]
)
@pytest.mark.parametrize("phase", ["fetching", "working", "reporting", "settled"])
def test_a_task_of_a_run_that_is_over_is_ignored(phase, late):
    session = by_hand.after(by_hand.PHASES[phase], by_hand.end())
    assert step(session, Received(late), 0.0) == (session, [])


def test_a_device_joins_the_next_run_after_the_end_of_one():
    session, commands = step(
        by_hand.after(by_hand.WORKING, by_hand.end()), Received(by_hand.task(run="run-2")), 0.0
    )
    assert session.phase is SessionPhase.WORKING
    assert commands == [by_hand.accepted(run="run-2"), StartWork(by_hand.task(run="run-2"))]


def test_the_end_of_an_earlier_run_does_not_stop_current_work():
    session = by_hand.after(by_hand.WORKING, Received(by_hand.task(run="run-2")))
    ended, commands = step(session, by_hand.end(), 0.0)
    assert (ended.phase, ended.task, commands) == (
        SessionPhase.WORKING,
        session.task,
        [RunEnded(by_hand.end().message)],
    )
