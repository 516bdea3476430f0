"""Held, given back, going on: what a device does about its owner's rules as time passes."""

from __future__ import annotations

from dataclasses import dataclass, field

from edge_client.agent.eligibility.conditions import Conditions
from edge_client.agent.eligibility.machine import (
    Command,
    EligibilityState,
    GiveBack,
    Hold,
    ReportVerdict,
    Resume,
    step,
)
from edge_client.agent.eligibility.rules import Rules
from schemas.values import Eligibility

RULES = Rules(max_temperature_c=70, mains_only=True, give_back_after_s=60)
COOL, HOT = Conditions(celsius=50, source="mains"), Conditions(celsius=80, source="mains")
HOT_ON_BATTERY = Conditions(celsius=80, source="battery")


@dataclass
class Told:
    """A standing that is told what the board says."""

    standing: EligibilityState = field(default_factory=EligibilityState)

    def see(self, seen: Conditions, now: float, *, at_work: bool = True) -> list[Command]:
        self.standing, commands = step(self.standing, RULES, seen, now, at_work=at_work)
        return commands


def kinds(commands: list[Command]) -> list[type]:
    return [type(one) for one in commands]


def test_as_long_as_the_rules_are_kept_nothing_is_to_be_done():
    told = Told()
    assert told.see(COOL, 0.0) == told.see(COOL, 1000.0) == []
    assert told.standing.may_train


def test_heat_holds_training_at_once_and_lets_it_go_on_when_it_is_over():
    told = Told()
    assert kinds(told.see(HOT, 0.0)) == [Hold, ReportVerdict]
    assert told.see(HOT, 5.0) == []
    assert not told.standing.may_train
    assert kinds(told.see(COOL, 10.0)) == [Resume, ReportVerdict]


def test_a_task_that_waits_for_too_long_is_given_back_once():
    told = Told()
    told.see(HOT, 100.0)
    assert told.see(HOT, 159.0) == []
    assert told.see(HOT, 160.0) == [GiveBack("80 °C, at most 70 °C")]
    assert told.see(HOT, 161.0, at_work=False) == []


def test_time_counts_only_while_a_task_waits():
    told = Told()
    told.see(HOT, 0.0, at_work=False)
    told.see(HOT, 100.0, at_work=False)
    assert told.see(HOT, 200.0) == []
    assert kinds(told.see(HOT, 260.0)) == [GiveBack]


def test_a_short_relief_begins_the_time_anew():
    told = Told()
    told.see(HOT, 0.0)
    told.see(COOL, 50.0)
    assert kinds(told.see(HOT, 55.0)) == [Hold, ReportVerdict]
    assert told.see(HOT, 70.0) == []


def test_another_verdict_is_told_and_holds_nothing_twice():
    told = Told()
    told.see(HOT, 0.0)
    (tell,) = told.see(HOT_ON_BATTERY, 5.0)
    assert isinstance(tell, ReportVerdict)
    assert tell.verdict.eligibility is Eligibility.INFER_ONLY
