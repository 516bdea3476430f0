"""The compact models are delivered, and the run ends."""

import pytest

from edge_server.rounds import events
from edge_server.rounds.participant import OFFER_PATIENCE_S, Status
from edge_server.rounds.state import Phase
from schemas.errors import Reason
from schemas.messages import FederationEnd, RoundAnnouncement
from tests.edge_server.rounds import by_hand
from tests.edge_server.rounds.by_hand import training
from tests.edge_server.rounds.test_fleet import birth, death


def test_a_run_ends_when_every_device_has_its_model():
    run = by_hand.delivering("a", "b")
    commands = run.hear(by_hand.delivery("a"))
    assert commands == [events.RecordDelivery(by_hand.delivery("a")), by_hand.ack("a", None, 2)]
    commands = run.hear(by_hand.delivery("b"))
    assert by_hand.of(events.EndRun, commands) == [events.EndRun("finished")]
    assert by_hand.announced(commands) == ["federation-end"]


def test_a_repeated_delivery_is_acknowledged_and_counted_once():
    run = by_hand.delivering("a", "b")
    run.hear(by_hand.delivery("a"))
    assert run.hear(by_hand.delivery("a")) == [by_hand.ack("a", None, 2)]


def test_a_device_that_cannot_deliver_does_not_hold_up_the_end():
    run = by_hand.delivering("a", "b")
    run.hear(by_hand.delivery("a"))
    assert by_hand.of(events.EndRun, run.wait(100)) == [events.EndRun("finished")]


def test_a_delivery_of_a_device_that_was_given_up_is_recorded():
    run = by_hand.delivering("a", "b")
    run.hear(death("a"))
    run.wait(run.federation.rules.rejoin_s + 1)
    assert run.status("a") is Status.MISSED
    assert run.hear(by_hand.delivery("a")) == [
        events.RecordDelivery(by_hand.delivery("a")),
        by_hand.ack("a", None, 2),
    ]


def test_deliver_every_delivers_models_between_rounds():
    run = training("a", "b", rounds=4, deliver_every=2)
    seen = []
    for number in (1, 2, 3, 4):
        assert run.federation.round == number
        if run.phase is Phase.PLANNING:
            run.plan("a", "b")
        run.upload("a")
        run.upload("b")
        asked = by_hand.of(events.PlanRound, run.tell(events.RoundClosed(number)))
        if run.phase is Phase.DELIVERING:
            (plan,) = asked
            assert (plan.round, plan.deliver, len(plan.devices)) == (number, True, 2)
            run.plan("a", "b", deliver=True)
            run.hear(by_hand.delivery("a", number, plan.attempt))
            seen.append((number, run.hear(by_hand.delivery("b", number, plan.attempt))))
    # After the delivery of round 2, round 3 is planned at once; the delivery of round 4 ends the run.
    assert [number for number, _ in seen] == [2, 4]
    (plan,) = by_hand.of(events.PlanRound, seen[0][1])
    assert (plan.round, plan.deliver, plan.retry) == (3, False, 0)
    assert by_hand.of(events.EndRun, seen[0][1]) == []
    assert by_hand.of(events.EndRun, seen[1][1]) == [events.EndRun("finished")]


def test_a_device_that_does_not_deliver_holds_up_the_next_round_until_the_deadline():
    run = training("a", "b", rounds=2, deliver_every=1)
    run.upload("a")
    run.upload("b")
    run.tell(events.RoundClosed(1))
    run.plan("a", "b", deliver=True)
    run.hear(by_hand.delivery("a", 1, 2))
    assert run.phase is Phase.DELIVERING
    run.wait(100)
    assert (run.phase, run.federation.round) == (Phase.PLANNING, 2)


def test_a_delivery_between_rounds_without_devices_is_skipped():
    run = training("a", rounds=2, deliver_every=1)
    run.upload("a")
    run.tell(events.RoundClosed(1))
    run.plan(deliver=True)
    assert (run.phase, run.federation.round) == (Phase.PLANNING, 2)


def test_a_run_that_ends_before_its_last_round_delivers_once():
    run = training("a", rounds=3, deliver_every=1)
    run.upload("a")
    run.tell(events.RoundClosed(1))
    run.plan("a", deliver=True)
    run.hear(by_hand.delivery("a", 1, 2))
    (plan,) = by_hand.of(events.PlanRound, run.tell(events.RoundPlanned(3, {}, ended="the budget is spent")))
    assert (plan.round, plan.deliver) == (1, True)
    run.plan("a", deliver=True)
    assert by_hand.of(events.EndRun, run.hear(by_hand.delivery("a", 1, 4))) == [
        events.EndRun("finished", "the budget is spent")
    ]


def test_a_run_without_anyone_to_deliver_to_ends():
    run = training("a", rounds=1)
    run.upload("a")
    run.tell(events.RoundClosed(1))
    assert by_hand.of(events.EndRun, run.plan(deliver=True)) == [events.EndRun("finished")]


def test_an_offer_of_delivery_is_repeated_and_sent_again_after_a_return():
    run = by_hand.delivering("a")
    assert by_hand.offers(run.wait(OFFER_PATIENCE_S)) == ["a"]
    run.hear(by_hand.reply("a", attempt=2))
    assert run.status("a") is Status.ACCEPTED
    assert by_hand.offers(run.hear(birth("a", session=2))) == ["a"]


def test_an_update_during_the_delivery_is_acknowledged_where_it_counted():
    run = by_hand.delivering("a")
    assert run.hear(by_hand.update("a")) == [by_hand.ack("a", by_hand.update("a").blob.digest)]
    assert by_hand.refusals(run.hear(by_hand.update("a", 1))) == [("a", Reason.ALREADY_COUNTED)]


def test_a_repeated_training_failure_does_not_decline_the_delivery_of_the_same_round():
    run = training("a", "b", rounds=1)
    failure = by_hand.reply("a", accepted=False, reason=Reason.TASK_FAILED)
    run.hear(failure)
    run.upload("b")
    run.tell(events.RoundClosed(1))
    run.plan("a", "b", deliver=True)
    assert by_hand.ack("a", None) in run.hear(failure)
    assert run.status("a") is Status.OFFERED


@pytest.mark.parametrize(
    "make", [lambda: by_hand.started(), lambda: training("a"), lambda: by_hand.delivering("a")]
)
def test_a_stop_announces_the_end(make):
    run = make()
    commands = run.tell(events.StopRequested())
    end = FederationEnd(
        federation=by_hand.NAME, run=by_hand.RUN, outcome="interrupted", rounds=run.federation.rules.rounds
    )
    # In this order: devices that know the end do nothing more for a server that has forgotten it.
    assert commands == [events.EndRun("interrupted", "stopped by the user"), events.Announce(end)]
    assert run.tell(events.StopRequested()) == []
    assert run.wait(1000) == []
    assert run.hear(birth("b")) == []


def test_the_announcement_contains_the_round_and_the_phase():
    run = training("a", "b")
    messages = [command.message for command in by_hand.of(events.Announce, run.log)]
    (message,) = [message for message in messages if message.phase == "training"]
    assert message == RoundAnnouncement(
        federation=by_hand.NAME, run=by_hand.RUN, round=1, rounds=2, phase="training", selected=2
    )


def test_the_aggregation_of_updates_is_announced():
    run = training("a")
    assert by_hand.announced(run.upload("a")) == ["aggregating"]
