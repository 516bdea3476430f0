"""The compact models are delivered, and the run ends."""

import pytest

from edge_server.rounds.events import (
    Announce,
    EndRun,
    PlanRound,
    RecordDelivery,
    RoundClosed,
    RoundPlanned,
    StopRequested,
)
from edge_server.rounds.participant import OFFER_PATIENCE_S, Status
from edge_server.rounds.state import Phase
from schemas.errors import Reason
from schemas.messages import FederationEnd, RoundAnnouncement
from tests.edge_server.rounds.by_hand import (
    NAME,
    RUN,
    ack,
    announced,
    delivering,
    delivery,
    of,
    offers,
    refusals,
    reply,
    started,
    training,
    update,
)
from tests.edge_server.rounds.test_fleet import birth, death


def test_a_run_ends_when_every_device_has_its_model():
    run = delivering("a", "b")
    commands = run.hear(delivery("a"))
    assert commands == [RecordDelivery(delivery("a")), ack("a", None, 2)]
    commands = run.hear(delivery("b"))
    assert of(EndRun, commands) == [EndRun("finished")]
    assert announced(commands) == ["federation-end"]


def test_a_repeated_delivery_is_acknowledged_and_counted_once():
    run = delivering("a", "b")
    run.hear(delivery("a"))
    assert run.hear(delivery("a")) == [ack("a", None, 2)]


def test_a_device_that_cannot_deliver_does_not_hold_up_the_end():
    run = delivering("a", "b")
    run.hear(delivery("a"))
    assert of(EndRun, run.wait(100)) == [EndRun("finished")]


def test_a_delivery_of_a_device_that_was_given_up_is_recorded():
    run = delivering("a", "b")
    run.hear(death("a"))
    run.wait(run.federation.rules.rejoin_s + 1)
    assert run.status("a") is Status.MISSED
    assert run.hear(delivery("a")) == [RecordDelivery(delivery("a")), ack("a", None, 2)]


def test_deliver_every_delivers_models_between_rounds():
    run = training("a", "b", rounds=4, deliver_every=2)
    seen = []
    for number in (1, 2, 3, 4):
        assert run.federation.round == number
        if run.phase is Phase.PLANNING:
            run.plan("a", "b")
        run.upload("a")
        run.upload("b")
        asked = of(PlanRound, run.tell(RoundClosed(number)))
        if run.phase is Phase.DELIVERING:
            (plan,) = asked
            assert (plan.round, plan.deliver, len(plan.devices)) == (number, True, 2)
            run.plan("a", "b", deliver=True)
            run.hear(delivery("a", number, plan.attempt))
            seen.append((number, run.hear(delivery("b", number, plan.attempt))))
    # After the delivery of round 2, round 3 is planned at once; the delivery of round 4 ends the run.
    assert [number for number, _ in seen] == [2, 4]
    (plan,) = of(PlanRound, seen[0][1])
    assert (plan.round, plan.deliver, plan.retry) == (3, False, 0)
    assert of(EndRun, seen[0][1]) == []
    assert of(EndRun, seen[1][1]) == [EndRun("finished")]


def test_a_device_that_does_not_deliver_holds_up_the_next_round_until_the_deadline():
    run = training("a", "b", rounds=2, deliver_every=1)
    run.upload("a")
    run.upload("b")
    run.tell(RoundClosed(1))
    run.plan("a", "b", deliver=True)
    run.hear(delivery("a", 1, 2))
    assert run.phase is Phase.DELIVERING
    run.wait(100)
    assert (run.phase, run.federation.round) == (Phase.PLANNING, 2)


def test_a_delivery_between_rounds_without_devices_is_skipped():
    run = training("a", rounds=2, deliver_every=1)
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan(deliver=True)
    assert (run.phase, run.federation.round) == (Phase.PLANNING, 2)


def test_a_run_that_ends_before_its_last_round_delivers_once():
    run = training("a", rounds=3, deliver_every=1)
    run.upload("a")
    run.tell(RoundClosed(1))
    run.plan("a", deliver=True)
    run.hear(delivery("a", 1, 2))
    (plan,) = of(PlanRound, run.tell(RoundPlanned(3, {}, ended="the budget is spent")))
    assert (plan.round, plan.deliver) == (1, True)
    run.plan("a", deliver=True)
    assert of(EndRun, run.hear(delivery("a", 1, 4))) == [EndRun("finished", "the budget is spent")]


def test_a_run_without_anyone_to_deliver_to_ends():
    run = training("a", rounds=1)
    run.upload("a")
    run.tell(RoundClosed(1))
    assert of(EndRun, run.plan(deliver=True)) == [EndRun("finished")]


def test_an_offer_of_delivery_is_repeated_and_sent_again_after_a_return():
    run = delivering("a")
    assert offers(run.wait(OFFER_PATIENCE_S)) == ["a"]
    run.hear(reply("a", attempt=2))
    assert run.status("a") is Status.ACCEPTED
    assert offers(run.hear(birth("a", session=2))) == ["a"]


def test_an_update_during_the_delivery_is_acknowledged_where_it_counted():
    run = delivering("a")
    assert run.hear(update("a")) == [ack("a", update("a").blob.digest)]
    assert refusals(run.hear(update("a", 1))) == [("a", Reason.ALREADY_COUNTED)]


def test_a_repeated_training_failure_does_not_decline_the_delivery_of_the_same_round():
    run = training("a", "b", rounds=1)
    failure = reply("a", accepted=False, reason=Reason.TASK_FAILED)
    run.hear(failure)
    run.upload("b")
    run.tell(RoundClosed(1))
    run.plan("a", "b", deliver=True)
    assert ack("a", None) in run.hear(failure)
    assert run.status("a") is Status.OFFERED


@pytest.mark.parametrize("make", [lambda: started(), lambda: training("a"), lambda: delivering("a")])
def test_a_stop_announces_the_end(make):
    run = make()
    commands = run.tell(StopRequested())
    end = FederationEnd(federation=NAME, run=RUN, outcome="interrupted", rounds=run.federation.rules.rounds)
    # In this order: devices that know the end do nothing more for a server that has forgotten it.
    assert commands == [EndRun("interrupted", "stopped by the user"), Announce(end)]
    assert run.tell(StopRequested()) == []
    assert run.wait(1000) == []
    assert run.hear(birth("b")) == []


def test_the_announcement_contains_the_round_and_the_phase():
    run = training("a", "b")
    messages = [command.message for command in of(Announce, run.log)]
    (message,) = [message for message in messages if message.phase == "training"]
    assert message == RoundAnnouncement(
        federation=NAME, run=RUN, round=1, rounds=2, phase="training", selected=2
    )


def test_the_aggregation_of_updates_is_announced():
    run = training("a")
    assert announced(run.upload("a")) == ["aggregating"]
