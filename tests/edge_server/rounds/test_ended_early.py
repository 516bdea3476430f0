"""A plan can end the run early: the last model is delivered, and the run is finished."""

from edge_server.rounds.events import EndRun, PlanRound, RoundClosed, RoundPlanned
from edge_server.rounds.machine import Phase
from tests.edge_server.rounds.by_hand import of, offers, started, training

WHY = "the budget is spent"


def closed_once(**rules):
    """A run that waits for the plan of its second round."""
    run = training("a", rounds=5, **rules)
    run.upload("a")
    run.tell(RoundClosed(1))
    assert (run.phase, run.federation.round) == (Phase.PLANNING, 2)
    return run


def test_the_model_of_the_last_round_is_delivered_and_the_end_gives_the_reason():
    run = closed_once()
    (plan,) = of(PlanRound, run.tell(RoundPlanned(run.federation.attempt, {}, ended=WHY)))
    assert (plan.round, plan.deliver) == (1, True)
    assert run.phase is Phase.DELIVERING
    assert offers(run.plan("a", deliver=True)) == ["a"]
    commands = run.decline("a")
    assert of(EndRun, commands) == [EndRun("finished", WHY)]


def test_a_run_that_delivers_nothing_ends_at_once():
    run = closed_once(deliver=False)
    commands = run.tell(RoundPlanned(run.federation.attempt, {}, ended=WHY))
    assert of(EndRun, commands) == [EndRun("finished", WHY)]


def test_without_any_round_there_is_nothing_to_deliver():
    run = started("a")
    assert of(EndRun, run.tell(RoundPlanned(run.federation.attempt, {}, ended=WHY))) == [
        EndRun("failed", WHY)
    ]


def test_a_plan_of_another_attempt_ends_nothing():
    run = closed_once()
    assert run.tell(RoundPlanned(run.federation.attempt - 1, {}, ended=WHY)) == []
    assert run.phase is Phase.PLANNING
