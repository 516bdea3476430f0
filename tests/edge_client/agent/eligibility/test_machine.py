"""The eligibility machine over time: held, resumed, given back."""

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
class Stepped:
    """Steps the machine through conditions of the board."""

    state: EligibilityState = field(default_factory=EligibilityState)

    def see(self, seen: Conditions, now: float, *, at_work: bool = True) -> list[Command]:
        self.state, commands = step(self.state, RULES, seen, now, at_work=at_work)
        return commands


def kinds(commands: list[Command]) -> list[type]:
    return [type(command) for command in commands]


def test_as_long_as_the_rules_are_kept_nothing_is_to_be_done():
    stepped = Stepped()
    assert stepped.see(COOL, 0.0) == stepped.see(COOL, 1000.0) == []
    assert stepped.state.may_train


def test_heat_holds_training_at_once_and_lets_it_go_on_when_it_is_over():
    stepped = Stepped()
    assert kinds(stepped.see(HOT, 0.0)) == [Hold, ReportVerdict]
    assert stepped.see(HOT, 5.0) == []
    assert not stepped.state.may_train
    assert kinds(stepped.see(COOL, 10.0)) == [Resume, ReportVerdict]


def test_a_task_that_waits_for_too_long_is_given_back_once():
    stepped = Stepped()
    stepped.see(HOT, 100.0)
    assert stepped.see(HOT, 159.0) == []
    assert stepped.see(HOT, 160.0) == [GiveBack("80 °C, at most 70 °C")]
    assert stepped.see(HOT, 161.0, at_work=False) == []


def test_time_counts_only_while_a_task_waits():
    stepped = Stepped()
    stepped.see(HOT, 0.0, at_work=False)
    stepped.see(HOT, 100.0, at_work=False)
    assert stepped.see(HOT, 200.0) == []
    assert kinds(stepped.see(HOT, 260.0)) == [GiveBack]


def test_a_short_relief_begins_the_time_anew():
    stepped = Stepped()
    stepped.see(HOT, 0.0)
    stepped.see(COOL, 50.0)
    assert kinds(stepped.see(HOT, 55.0)) == [Hold, ReportVerdict]
    assert stepped.see(HOT, 70.0) == []


def test_another_verdict_is_reported_and_holds_nothing_twice():
    stepped = Stepped()
    stepped.see(HOT, 0.0)
    (report,) = stepped.see(HOT_ON_BATTERY, 5.0)
    assert isinstance(report, ReportVerdict)
    assert report.verdict.eligibility is Eligibility.INFER_ONLY
