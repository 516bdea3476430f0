"""Which devices a planning excludes, and the reasons that it gives."""

from dataclasses import replace

from edge_server.rounds import planning as module
from edge_server.rounds.events import PlanRound, RoundClosed
from edge_server.rounds.machine import Buffering
from edge_server.rounds.participant import mark_missed
from edge_server.rounds.reputation import ReputationRules
from schemas.errors import Reason
from schemas.values import Eligibility
from tests.edge_server.rounds.by_hand import of, started
from tests.edge_server.rounds.test_fleet import birth, death
from tests.edge_server.rounds.test_given_back import give_back, of_two, reported


def reasons(commands: list) -> dict[str, str]:
    (plan,) = of(PlanRound, commands)
    return {excluded.device.name: excluded.because for excluded in plan.left_out}


def test_a_planning_with_all_devices_excludes_nobody():
    (plan,) = of(PlanRound, started("a", start_clients=2).hear(birth("b")))
    assert (plan.left_out, plan.known) == ((), 2)


def test_offline_devices_and_those_held_by_their_owner_are_named_with_the_reason():
    run = started("gone", "infers", "held", start_clients=4)
    run.hear(death("gone"))
    run.hear(reported("held", Eligibility.PAUSE, "battery 12 %, at least 30 %"))
    run.hear(reported("infers", Eligibility.INFER_ONLY))
    for device in "xyz":
        assert of(PlanRound, run.hear(birth(device))) == []
    assert reasons(run.hear(birth("w"))) == {
        "gone": "offline",
        "held": "left out: its owner's rules: battery 12 %, at least 30 %",
        "infers": "left out: its owner's rules: infer-only",
    }


def test_a_device_in_quarantine_is_named_with_the_cause_and_the_end_of_the_quarantine():
    # Strikes in rounds 1 to 3, one of them doubtful (it counts half): 1 + 1/2 + 1 exceeds the limit of 2.
    run = started("a", "b", rounds=9, reputation=ReputationRules(after=2, window=10, rounds=2), quorum=0.1)
    run.plan("a", "b")
    for number, reason in enumerate((Reason.NOT_FINITE, Reason.DIGEST_MISMATCH, Reason.NOT_FINITE), start=1):
        run.upload("a", reason=reason)
        run.upload("b")
        planning = run.tell(RoundClosed(number))
        if number < 3:
            run.plan("a", "b")
    assert reasons(planning) == {
        "a": "left out: quarantined until round 5 after 3 refusals (digest-mismatch, not-finite)"
    }


def test_buffered_rounds_name_the_working_devices_at_the_first_planning():
    run = started("a", "b", "c", start_clients=3, rounds=9, buffering=Buffering(1, concurrency=4))
    run.plan("a", "b", "c")
    run.upload("a")
    working = "still at work on round 1"
    assert reasons(run.tell(RoundClosed(1))) == {"b": working, "c": working}
    run.plan("a")
    # Later plannings of the round name no excluded devices.
    (again,) = of(PlanRound, run.hear(birth("d")))
    assert (again.left_out, again.known) == ((), 4)


def test_a_planning_names_the_device_to_replace_and_each_place_is_filled_once():
    run = of_two("c", "d", "e", rounds=1)
    (first,) = of(PlanRound, give_back(run, "b"))
    assert (first.places, first.wanted) == (("b",), 1)
    run.plan("d")
    (second,) = of(PlanRound, give_back(run, "a"))
    assert (second.places, second.wanted) == (("a",), 1)
    run.plan("c")
    assert of(PlanRound, run.wait(1)) == []


def test_the_number_of_named_devices_is_limited(monkeypatch):
    monkeypatch.setattr(module, "MAX_DEVICES", 3)
    run = started(start_clients=2)
    for number in range(9):
        run.hear(reported(f"held-{number}", Eligibility.PAUSE, "hot"))
    run.hear(birth("a"))
    (plan,) = of(PlanRound, run.hear(birth("b")))
    assert [excluded.device.name for excluded in plan.left_out] == ["held-0", "held-1", "held-2"]
    assert plan.known == 11


def test_a_device_without_a_counted_update_is_named_with_the_reason():
    run = started("a", "b", "c", start_clients=3, rounds=9, buffering=Buffering(2, concurrency=3))
    run.plan("a", "b", "c")
    run.upload("a", reason=Reason.NOT_FINITE)
    give_back(run, "b")
    late = run.federation.participants.with_participant(mark_missed(run.federation.participants["c"]))
    left_out = module.excluded_devices(replace(run.federation, participants=late), ())
    assert {excluded.device.name: excluded.because for excluded in left_out} == {
        "a": "its update of round 1 was refused: not-finite",
        "b": "declined its task of round 1: ineligible",
        "c": "missed its part in round 1",
    }
