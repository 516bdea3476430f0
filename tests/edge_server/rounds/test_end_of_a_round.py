"""A round ends when all devices have answered or at its deadline; it is closed or abandoned."""

import pytest

from edge_server.rounds import events
from edge_server.rounds.machine import RETRY_S, Phase
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from tests.edge_server.rounds.by_hand import ack, announced, chunks, of, refusals, reply, training, update
from tests.edge_server.rounds.test_fleet import death


def test_at_the_deadline_a_round_with_its_quorum_closes():
    run = training("a", "b", "c", quorum=0.5)
    run.upload("a")
    run.upload("b")
    assert of(events.CloseRound, run.wait(99)) == []
    (close,) = of(events.CloseRound, run.wait(1))
    # ceil(0.5 * 3) = 2 updates are enough.
    assert (sorted(close.updates), close.dropped) == (["a", "b"], ("c",))


def test_at_the_deadline_a_round_without_its_quorum_is_abandoned():
    run = training("a", "b", "c", quorum=0.5)
    run.upload("a")
    commands = run.wait(100)
    assert of(events.CloseRound, commands) == []
    assert [note.what for note in of(events.Note, commands)] == ["round abandoned"]
    assert announced(commands) == ["waiting"]
    assert (run.phase, run.federation.round) == (Phase.WAITING, 1)


def test_a_round_without_updates_is_abandoned_even_with_a_quorum_of_zero():
    run = training("a", quorum=0.0)
    run.hear(reply("a", accepted=False))
    assert run.phase is Phase.WAITING


def test_the_deadline_waits_for_an_update_that_is_being_checked():
    run = training("a")
    run.hear(update("a"))
    for event in chunks("a"):
        run.tell(event)
    assert run.wait(200) == []
    assert of(events.CloseRound, run.tell(events.UpdateChecked("a", update("a").blob.digest)))


def test_abandoned_rounds_are_planned_again_after_growing_pauses_and_finally_given_up():
    run = training("a", attempts=3)
    pauses = []
    for _ in range(3):
        run.decline("a")
        began = run.now
        while run.phase is Phase.WAITING:
            run.wait(0.5)
        pauses.append(run.now - began)
        run.plan("a")
    assert pauses == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    commands = run.decline("a")
    (end,) = of(events.EndRun, commands)
    assert (end.outcome, announced(commands)) == ("failed", ["federation-end"])
    assert "given up after 4 attempts" in end.detail
    assert run.phase is Phase.ENDED


def test_pauses_restart_with_the_next_round():
    run = training("a")
    run.decline("a")
    run.wait(RETRY_S)
    run.plan("a")
    run.upload("a")
    run.tell(events.RoundClosed(1))
    run.plan("a")
    run.decline("a")
    assert run.wait(RETRY_S - 0.1) == []
    assert of(events.PlanRound, run.wait(0.1))


def test_the_same_update_may_count_again_in_the_next_attempt_of_an_abandoned_round():
    run = training("a", "b", quorum=1.0)
    run.upload("a")
    run.decline("b")
    run.wait(RETRY_S)
    run.plan("a")
    (close,) = of(events.CloseRound, run.upload("a"))
    # The same bytes, as an answer to the second attempt.
    assert close.updates == {"a": update("a", attempt=2)}


def test_an_update_that_was_confirmed_is_confirmed_again_after_its_round_was_abandoned():
    # The device may have lost the first answer and must not consider its update refused.
    run = training("a", "b", quorum=1.0)
    run.upload("a")
    run.decline("b")
    again = [ack("a", update("a").blob.digest)]
    assert run.hear(update("a")) == again
    run.wait(RETRY_S)
    run.plan("a", "b")
    assert run.hear(update("a")) == again
    assert run.status("a") is Status.OFFERED


def test_an_update_of_an_abandoned_attempt_that_was_not_confirmed_is_stale():
    run = training("a", "b", quorum=1.0)
    run.hear(update("a"))
    run.decline("b")
    run.wait(100)
    run.wait(RETRY_S)
    run.plan("a", "b")
    assert refusals(run.hear(update("a"))) == [("a", Reason.STALE_ROUND)]
    assert run.status("a") is Status.OFFERED


def test_a_reply_to_an_abandoned_attempt_declines_nothing_in_the_next_one():
    run = training("a")
    run.decline("a")
    run.wait(RETRY_S)
    run.plan("a")
    assert run.hear(reply("a", accepted=False)) == [ack("a", None)]
    assert run.status("a") is Status.OFFERED


def test_after_an_abandonment_fewer_devices_are_enough_than_at_the_start():
    run = training("a", "b", "c", start_clients=3, min_clients=1)
    run.hear(death("b"))
    run.hear(death("c"))
    for device in "abc":
        run.decline(device)
    (plan,) = of(events.PlanRound, run.wait(RETRY_S))
    assert [device.name for device in plan.devices] == ["a"]


def test_rounds_follow_each_other_and_end_in_a_delivery():
    run = training("a", rounds=2)
    run.upload("a")
    (plan,) = of(events.PlanRound, run.tell(events.RoundClosed(1)))
    assert (plan.round, plan.deliver) == (2, False)
    run.plan("a")
    run.upload("a")
    (plan,) = of(events.PlanRound, run.tell(events.RoundClosed(2)))
    assert (plan.round, plan.deliver) == (2, True)


def test_a_run_without_delivery_ends_after_its_last_round():
    run = training("a", rounds=1, deliver=False)
    run.upload("a")
    commands = run.tell(events.RoundClosed(1))
    assert (announced(commands), of(events.EndRun, commands)) == (
        ["federation-end"],
        [events.EndRun("finished")],
    )
    assert of(events.PlanRound, commands) == []


@pytest.mark.parametrize("number", [0, 2])
def test_the_end_of_another_rounds_aggregation_is_ignored(number):
    run = training("a")
    run.upload("a")
    assert run.tell(events.RoundClosed(number)) == []
    assert run.phase is Phase.CLOSING


def test_an_abandoned_round_says_what_most_devices_have_failed_with():
    run = training("a", "b", "c")
    for name, words in (("a", "KeyError: 'b'"), ("b", "out of memory")):
        run.hear(reply(name, accepted=False, detail=words))
    commands = run.hear(reply("c", accepted=False, detail="KeyError: 'b'"))
    assert of(events.Note, commands)[-1].detail == (
        "round 1: 0 of 3 updates, below the quorum; 2 of 3 failed with KeyError: 'b'"
    )


def test_a_round_for_which_nobody_can_be_chosen_says_why():
    run = training("a")
    run.decline("a")
    run.wait(RETRY_S)
    planned = events.RoundPlanned(run.federation.attempt, {}, left_out="a: its edge-federation is too old")
    commands = run.tell(planned)
    assert (
        of(events.Note, commands)[-1].detail == "round 1: no device chosen: a: its edge-federation is too old"
    )
