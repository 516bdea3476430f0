"""A device that may not train is not asked to; a device that gives its task back is replaced."""

import pytest

from edge_server.rounds.events import CloseRound, Note, PlanRound
from edge_server.rounds.machine import Phase
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from schemas.values import Eligibility
from tests.edge_server.rounds.by_hand import Run, of, offers, reply, started
from tests.edge_server.rounds.test_fleet import birth


def reported(device: str, eligibility: Eligibility, because: str = ""):
    return birth(device).model_copy(update={"eligibility": eligibility, "ineligible_because": because})


def give_back(run: Run, device: str, reason: Reason = Reason.INELIGIBLE) -> list:
    """The device gives its task back because it may not continue."""
    attempt = run.task[device].attempt
    return run.hear(reply(device, 1, attempt, accepted=False, reason=reason))


def of_two(*others: str, **rules) -> Run:
    """A round with a and b; the other devices are connected but not selected."""
    run = started("a", "b", *others, start_clients=2 + len(others), **rules)
    run.plan("a", "b", needed=2)
    return run


def asked(plan: PlanRound) -> list[str]:
    return [device.name for device in plan.devices]


def test_an_ineligible_device_is_not_planned_until_it_reports_that_it_may_train():
    run = started("a", start_clients=2)
    (note,) = of(Note, run.hear(reported("b", Eligibility.PAUSE, "80 °C, at most 70 °C")))
    assert (note.device, note.detail) == ("b", "80 °C, at most 70 °C")
    assert of(PlanRound, run.wait(1)) == []
    (plan,) = of(PlanRound, run.hear(reported("b", Eligibility.TRAIN)))
    assert asked(plan) == ["a", "b"]


@pytest.mark.parametrize("reason", [Reason.INELIGIBLE, Reason.NO_MEMORY, Reason.NO_SPACE])
def test_another_device_replaces_one_that_gives_its_task_back(reason):
    run = of_two("c", "d")
    (plan,) = of(PlanRound, give_back(run, "a", reason))
    assert (asked(plan), plan.wanted, plan.round) == (["c", "d"], 1, 1)
    assert offers(run.plan("c")) == ["c"]
    assert run.phase is Phase.TRAINING
    run.upload("b")
    assert run.phase is Phase.TRAINING
    (closing,) = of(CloseRound, run.upload("c"))
    assert (sorted(closing.updates), closing.selected, closing.dropped) == (
        ["b", "c"],
        ("a", "b", "c"),
        ("a",),
    )


def test_a_replacement_has_until_the_deadline_of_the_round():
    run = of_two("c")
    run.wait(30)
    give_back(run, "a")
    run.plan("c")
    assert {participant.deadline for participant in run.federation.participants.values()} == {100.0}


def test_with_less_than_half_of_the_time_left_no_replacement_is_asked():
    run = of_two("c")
    run.wait(51)
    assert of(PlanRound, give_back(run, "a")) == []
    assert of(CloseRound, run.upload("b"))


def test_without_other_devices_the_round_continues_without_a_replacement():
    run = of_two()
    assert of(PlanRound, give_back(run, "a")) == []
    assert of(CloseRound, run.upload("b"))


def test_a_device_that_cannot_do_the_task_is_not_replaced():
    run = of_two("c")
    failed = reply("a", accepted=False, reason=Reason.TASK_FAILED)
    assert of(PlanRound, run.hear(failed)) == []


def test_a_replacement_may_give_its_task_back_too():
    run = of_two("c", "d")
    give_back(run, "a")
    run.plan("c")
    (plan,) = of(PlanRound, give_back(run, "c"))
    assert asked(plan) == ["d"]
    run.plan("d")
    assert run.status("d") is Status.OFFERED


def test_a_plan_without_a_replacement_leaves_the_round_unchanged():
    run = of_two("c")
    give_back(run, "a")
    run.plan()
    assert run.phase is Phase.TRAINING
    assert of(PlanRound, run.wait(1)) == []
    assert of(CloseRound, run.upload("b"))


def test_with_privacy_accounting_no_device_joins_a_round():
    run = of_two("c", replaces=False)
    assert of(PlanRound, give_back(run, "a")) == []
