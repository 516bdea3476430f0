"""More devices are asked than a round needs, and it closes with the first that are done."""

from edge_server.rounds.events import CheckUpdate, CloseRound, Note, PlanRound, RoundClosed, UpdateChecked
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from schemas.values import Reason
from tests.edge_server.rounds.by_hand import announced, chunks, of, refusals, reply, started, update
from tests.edge_server.rounds.test_fleet import death


def asking(*devices: str, needed: int | None, **rules):
    run = started(*devices, start_clients=len(devices), **rules)
    run.plan(*devices, needed=needed)
    return run


def test_whoever_plans_hears_how_many_to_ask():
    run = started("a", over_select=1.5)
    (plan,) = of(PlanRound, run.log)
    assert (plan.over_select, plan.wanted) == (1.5, None)


def test_the_round_closes_with_the_updates_that_it_needs_and_lets_the_others_go():
    run = asking("a", "b", "c", needed=2)
    run.hear(reply("c"))
    assert of(CloseRound, run.upload("a")) == []
    commands = run.upload("b")
    (close,) = of(CloseRound, commands)
    assert (sorted(close.updates), close.dropped) == (["a", "b"], ("c",))
    assert close.selected == ("a", "b", "c")
    assert announced(commands) == ["aggregating"]
    assert run.status("c") is Status.MISSED
    assert refusals(run.hear(update("c"))) == [("c", Reason.STALE_ROUND)]


def test_an_update_that_is_being_checked_when_the_round_closes_does_not_count():
    run = asking("a", "b", needed=1)
    run.hear(update("b"))
    for event in chunks("b"):
        commands = run.tell(event)
    assert CheckUpdate("b", update("b")) in commands
    run.upload("a")
    assert run.tell(UpdateChecked("b", update("b").blob.digest)) == []
    assert run.federation.counted.keys() == {"a"}


def test_the_next_round_may_have_other_needs():
    run = asking("a", "b", needed=1)
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a", "b", needed=2)
    assert of(CloseRound, run.upload("b")) == []
    assert of(CloseRound, run.upload("a"))


def test_the_quorum_is_of_what_is_needed():
    # ceil(0.5 * 2) = 1 is enough, of four that were asked.
    run = asking("a", "b", "c", "d", needed=2, quorum=0.5)
    run.upload("a")
    (close,) = of(CloseRound, run.wait(100))
    assert (sorted(close.updates), close.dropped) == (["a"], ("b", "c", "d"))


def test_fewer_than_the_quorum_of_what_is_needed_abandon_the_round():
    # ceil(1.0 * 2) = 2.
    run = asking("a", "b", "c", needed=2, quorum=1.0)
    run.upload("a")
    (note,) = of(Note, run.wait(100))
    assert note.detail == "round 1: 1 of 2 updates, below the quorum"
    assert run.phase is Phase.WAITING


def test_losses_within_the_surplus_cost_nothing():
    run = asking("a", "b", "c", needed=2, quorum=1.0, rejoin_s=5)
    run.hear(death("a"))
    run.wait(5)
    run.upload("b")
    assert of(CloseRound, run.upload("c"))


def test_more_needed_than_asked_is_all_who_were_asked():
    run = asking("a", "b", needed=9)
    run.upload("a")
    assert of(CloseRound, run.upload("b"))
