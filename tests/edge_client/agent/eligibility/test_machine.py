"""The eligibility machine over time: held, resumed, given back."""

from dataclasses import dataclass, field

from edge_client.agent.eligibility import machine
from edge_client.agent.eligibility.rules import Rules
from edge_client.agent.eligibility.verdict import Conditions
from schemas.values import Eligibility

RULES = Rules(max_temperature_c=70, mains_only=True, give_back_after_s=60)
COOL, HOT = Conditions(celsius=50, source="mains"), Conditions(celsius=80, source="mains")
HOT_ON_BATTERY = Conditions(celsius=80, source="battery")


@dataclass
class Stepped:
    """Steps the eligibility machine through board conditions."""

    state: machine.EligibilityState = field(default_factory=machine.EligibilityState)

    def see(self, seen: Conditions, now: float, *, at_work: bool = True) -> list[machine.Command]:
        self.state, commands = machine.step(self.state, RULES, seen, now, at_work=at_work)
        return commands


def kinds(commands: list[machine.Command]) -> list[type]:
    return [type(command) for command in commands]


def test_no_commands_while_all_rules_are_met():
    stepped = Stepped()
    assert stepped.see(COOL, 0.0) == stepped.see(COOL, 1000.0) == []
    assert stepped.state.may_train


def test_heat_holds_training_immediately_and_cooling_resumes_it():
    stepped = Stepped()
    assert kinds(stepped.see(HOT, 0.0)) == [machine.Hold, machine.ReportVerdict]
    assert stepped.see(HOT, 5.0) == []
    assert not stepped.state.may_train
    assert kinds(stepped.see(COOL, 10.0)) == [machine.Resume, machine.ReportVerdict]


def test_a_task_held_for_too_long_is_given_back_once():
    stepped = Stepped()
    stepped.see(HOT, 100.0)
    assert stepped.see(HOT, 159.0) == []
    assert stepped.see(HOT, 160.0) == [machine.GiveBack("80 °C, at most 70 °C")]
    assert stepped.see(HOT, 161.0, at_work=False) == []


def test_hold_time_counts_only_while_a_task_is_held():
    stepped = Stepped()
    stepped.see(HOT, 0.0, at_work=False)
    stepped.see(HOT, 100.0, at_work=False)
    assert stepped.see(HOT, 200.0) == []
    assert kinds(stepped.see(HOT, 260.0)) == [machine.GiveBack]


def test_a_short_recovery_resets_the_hold_time():
    stepped = Stepped()
    stepped.see(HOT, 0.0)
    stepped.see(COOL, 50.0)
    assert kinds(stepped.see(HOT, 55.0)) == [machine.Hold, machine.ReportVerdict]
    assert stepped.see(HOT, 70.0) == []


def test_a_changed_verdict_is_reported_without_a_second_hold():
    stepped = Stepped()
    stepped.see(HOT, 0.0)
    (report,) = stepped.see(HOT_ON_BATTERY, 5.0)
    assert isinstance(report, machine.ReportVerdict)
    assert report.verdict.eligibility is Eligibility.INFER_ONLY
