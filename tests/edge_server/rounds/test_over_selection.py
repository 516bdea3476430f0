"""A round asks more devices than it needs and closes with the first updates."""

from edge_server.rounds import events
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from tests.edge_server.rounds.by_hand import announced, chunks, of, refusals, reply, started, update
from tests.edge_server.rounds.test_fleet import death


def asking(*devices: str, needed: int | None, **rules):
    run = started(*devices, start_clients=len(devices), **rules)
    run.plan(*devices, needed=needed)
    return run


def test_a_planning_contains_the_over_selection_factor():
    run = started("a", over_select=1.5)
    (plan,) = of(events.PlanRound, run.log)
    assert (plan.over_select, plan.wanted) == (1.5, None)


def test_the_round_closes_with_the_updates_that_it_needs_and_drops_the_others():
    run = asking("a", "b", "c", needed=2)
    run.hear(reply("c"))
    assert of(events.CloseRound, run.upload("a")) == []
    commands = run.upload("b")
    (close,) = of(events.CloseRound, commands)
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
    assert events.CheckUpdate("b", update("b")) in commands
    run.upload("a")
    assert run.tell(events.UpdateChecked("b", update("b").blob.digest)) == []
    assert run.federation.counted.keys() == {"a"}


def test_a_device_whose_update_was_being_checked_hears_that_it_is_late_when_the_journal_has_it():
    run = asking("a", "b", needed=1)
    run.hear(update("b"))
    for event in chunks("b"):
        run.tell(event)
    run.upload("a")
    assert run.hear(update("b")) == []
    run.tell(events.RoundClosed(1))
    assert refusals(run.hear(update("b"))) == [("b", Reason.STALE_ROUND)]


def test_an_update_of_an_earlier_round_that_the_journal_has_as_accepted_is_acknowledged_again():
    run = asking("a", needed=1)
    for number in (1, 2):
        run.upload("a", number)
        run.tell(events.RoundClosed(number))
        run.plan("a", needed=1)
    (answer,) = run.tell(events.MessageReceived(update("a", 1, 1), accepted=True))
    assert (answer.device, answer.message.kind, answer.message.attempt) == ("a", "acknowledgement", 1)
    assert refusals(run.hear(update("a", 1, 1))) == [("a", Reason.STALE_ROUND)]


def test_the_next_round_may_need_another_number_of_updates():
    run = asking("a", "b", needed=1)
    run.upload("a")
    run.tell(events.RoundClosed(1))
    run.plan("a", "b", needed=2)
    assert of(events.CloseRound, run.upload("b")) == []
    assert of(events.CloseRound, run.upload("a"))


def test_the_quorum_is_a_share_of_the_needed_updates():
    # ceil(0.5 * 2) = 1 update is enough, although four devices were asked.
    run = asking("a", "b", "c", "d", needed=2, quorum=0.5)
    run.upload("a")
    (close,) = of(events.CloseRound, run.wait(100))
    assert (sorted(close.updates), close.dropped) == (["a"], ("b", "c", "d"))


def test_a_round_below_the_quorum_of_needed_updates_is_abandoned():
    # ceil(1.0 * 2) = 2.
    run = asking("a", "b", "c", needed=2, quorum=1.0)
    run.upload("a")
    (note,) = of(events.Note, run.wait(100))
    assert note.detail == "round 1: 1 of 2 updates, below the quorum"
    assert run.phase is Phase.WAITING


def test_losses_within_the_surplus_cost_nothing():
    run = asking("a", "b", "c", needed=2, quorum=1.0, rejoin_s=5)
    run.hear(death("a"))
    run.wait(5)
    run.upload("b")
    assert of(events.CloseRound, run.upload("c"))


def test_the_needed_number_is_limited_to_the_devices_asked():
    run = asking("a", "b", needed=9)
    run.upload("a")
    assert of(events.CloseRound, run.upload("b"))
