"""When a round is planned, and when it is planned again."""

import pytest

from edge_server.rounds.events import EndRun, Note, PlanRound, RoundClosed, RoundPlanned
from edge_server.rounds.machine import RETRY_S, Phase
from tests.edge_server.rounds.by_hand import announced, assignment, of, offers, started
from tests.edge_server.rounds.test_fleet import birth, death


def test_a_run_waits_for_its_first_devices_and_later_rounds_for_fewer():
    run = started("a", start_clients=3, min_clients=2)
    assert (run.phase, announced(run.log)) == (Phase.WAITING, ["waiting"])
    assert run.hear(birth("b")) == []
    (plan,) = run.hear(birth("c"))
    assert (plan.round, [device.name for device in plan.devices]) == (1, ["a", "b", "c"])
    run.plan("a", "b", "c")
    for device in "abc":
        run.upload(device)
    run.hear(death("c"))
    (plan,) = of(PlanRound, run.tell(RoundClosed(1)))
    assert [device.name for device in plan.devices] == ["a", "b"]


def test_only_connected_devices_count():
    run = started("a", start_clients=2)
    run.hear(death("a"))
    run.hear(birth("b"))
    assert run.phase is Phase.WAITING
    assert of(PlanRound, run.hear(birth("a", session=2)))


def test_a_round_is_planned_once():
    run = started("a")
    assert run.phase is Phase.PLANNING
    assert run.hear(birth("b")) == []
    assert run.wait(50) == []


def test_a_plan_without_devices_is_repeated_after_a_pause():
    run = started("a")
    run.plan()
    assert run.phase is Phase.WAITING
    assert run.wait(RETRY_S - 0.1) == []
    assert len(of(PlanRound, run.wait(0.1))) == 1


def test_a_plan_without_devices_abandons_the_round():
    run = started("a", attempts=1)
    commands = run.plan()
    assert [note.what for note in of(Note, commands)] == ["round abandoned"]
    (plan,) = of(PlanRound, run.wait(RETRY_S))
    assert (plan.attempt, plan.retry) == (2, 1)
    commands = run.plan()
    assert [end.outcome for end in of(EndRun, commands)] == ["failed"]
    assert run.phase is Phase.ENDED


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_plan_of_another_attempt_is_ignored(attempt):
    run = started("a")
    run.plan()
    run.wait(RETRY_S)
    assert run.tell(RoundPlanned(attempt, {"a": assignment(1, attempt)})) == []
    assert run.phase is Phase.PLANNING
    assert offers(run.plan("a")) == ["a"]


def test_every_planning_of_the_run_has_its_own_number():
    run = started("a", rounds=2)
    run.plan("a")
    run.decline("a")  # attempt 1 of round 1 is abandoned
    run.wait(RETRY_S)
    for number in (1, 2):
        run.plan("a")
        run.upload("a")
        run.tell(RoundClosed(number))
    numbers = [(plan.round, plan.attempt, plan.retry, plan.deliver) for plan in of(PlanRound, run.log)]
    assert numbers == [(1, 1, 0, False), (1, 2, 1, False), (2, 3, 0, False), (2, 4, 0, True)]
