"""Who is not among the devices of a planning, and what is said of that."""

from dataclasses import replace

from edge_server.rounds import exclusions as module
from edge_server.rounds.events import PlanRound, RoundClosed
from edge_server.rounds.machine import Buffering
from edge_server.rounds.modes import mark_missed
from edge_server.rounds.reputation import ReputationRules
from schemas.values import Eligibility, Reason
from tests.edge_server.rounds.by_hand import of, started
from tests.edge_server.rounds.test_fleet import birth, death
from tests.edge_server.rounds.test_given_back import give_back, of_two, reported


def said(commands: list) -> dict[str, str]:
    (plan,) = of(PlanRound, commands)
    return {one.device.name: one.because for one in plan.left_out}


def test_of_a_planning_with_everybody_nobody_is_left_out():
    (plan,) = of(PlanRound, started("a", start_clients=2).hear(birth("b")))
    assert (plan.left_out, plan.known) == ((), 2)


def test_who_is_away_or_held_by_its_owner_is_named_with_the_reason():
    run = started("gone", "infers", "held", start_clients=4)
    run.hear(death("gone"))
    run.hear(reported("held", Eligibility.PAUSE, "battery 12 %, at least 30 %"))
    run.hear(reported("infers", Eligibility.INFER_ONLY))
    for device in "xyz":
        assert of(PlanRound, run.hear(birth(device))) == []
    assert said(run.hear(birth("w"))) == {
        "gone": "offline",
        "held": "left out: its owner's rules: battery 12 %, at least 30 %",
        "infers": "left out: its owner's rules: infer-only",
    }


def test_a_device_in_quarantine_is_named_with_what_led_to_it_and_when_it_ends():
    # Strikes in rounds 1 to 3, one of them doubtful (a half): 1 + 1/2 + 1 is enough for two rounds.
    run = started("a", "b", rounds=9, reputation=ReputationRules(after=2, window=10, rounds=2), quorum=0.1)
    run.plan("a", "b")
    for number, reason in enumerate((Reason.NOT_FINITE, Reason.DIGEST_MISMATCH, Reason.NOT_FINITE), start=1):
        run.upload("a", reason=reason)
        run.upload("b")
        planning = run.tell(RoundClosed(number))
        if number < 3:
            run.plan("a", "b")
    assert said(planning) == {
        "a": "left out: quarantined until round 5 after 3 refusals (digest-mismatch, not-finite)"
    }


def test_in_buffered_rounds_those_at_work_are_named_at_the_first_planning():
    run = started("a", "b", "c", start_clients=3, rounds=9, buffering=Buffering(1, concurrency=4))
    run.plan("a", "b", "c")
    run.upload("a")
    working = "still at work on round 1"
    assert said(run.tell(RoundClosed(1))) == {"b": working, "c": working}
    run.plan("a")
    # Later plannings of the round say only whom they chose.
    (again,) = of(PlanRound, run.hear(birth("d")))
    assert (again.left_out, again.known) == ((), 4)


def test_whose_place_is_taken_is_said_and_each_place_is_given_once():
    run = of_two("c", "d", "e", rounds=1)
    (first,) = of(PlanRound, give_back(run, "b"))
    assert (first.places, first.wanted) == (("b",), 1)
    run.plan("d")
    (second,) = of(PlanRound, give_back(run, "a"))
    assert (second.places, second.wanted) == (("a",), 1)
    run.plan("c")
    assert of(PlanRound, run.wait(1)) == []


def test_of_very_many_only_so_many_are_named(monkeypatch):
    monkeypatch.setattr(module, "MOST_DEVICES", 3)
    run = started(start_clients=2)
    for number in range(9):
        run.hear(reported(f"held-{number}", Eligibility.PAUSE, "hot"))
    run.hear(birth("a"))
    (plan,) = of(PlanRound, run.hear(birth("b")))
    assert [one.device.name for one in plan.left_out] == ["held-0", "held-1", "held-2"]
    assert plan.known == 11


def test_a_part_that_came_to_nothing_is_said_with_the_reason():
    run = started("a", "b", "c", start_clients=3, rounds=9, buffering=Buffering(2, concurrency=3))
    run.plan("a", "b", "c")
    run.upload("a", reason=Reason.NOT_FINITE)
    give_back(run, "b")
    late = run.federation.participants.put(mark_missed(run.federation.participants["c"]))
    named = module.excluded_devices(replace(run.federation, participants=late), ())
    assert {one.device.name: one.because for one in named} == {
        "a": "its update of round 1 was refused: not-finite",
        "b": "declined its task of round 1: ineligible",
        "c": "missed its part in round 1",
    }
