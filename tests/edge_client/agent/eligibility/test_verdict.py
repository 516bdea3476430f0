"""Each eligibility rule: what breaks it, the resulting verdict, and the margin for recovery."""

import pytest

from edge_client.agent.eligibility.rules import Rules, is_quiet
from edge_client.agent.eligibility.verdict import BREACHES, Conditions, conditions, judge, unknown
from schemas.values import Eligibility
from tests.edge_client.system.hardware.trees import PI, tree

PAUSE, INFER_ONLY, TRAIN = Eligibility.PAUSE, Eligibility.INFER_ONLY, Eligibility.TRAIN

# Option, limit, field, a value within the limit, a value that breaks the rule, a value at which a broken
# rule stays broken, and a value at which it recovers.
# 70 - 5 = 65 degrees; 30 + 5 = 35 percent; 0.8 * 2 = 1.6 per core; 0.8 * 20 = 16 percent.
RULES = {
    "temperature": ("max-temperature-c", 70, "celsius", 70, 71, 66, 65),
    "battery": ("min-battery-percent", 30, "battery", 30, 29, 34, 35),
    "load": ("max-load", 2, "load", 2.0, 2.1, 1.7, 1.6),
    "memory-pressure": ("max-memory-pressure-percent", 20, "memory_pressure", 20, 21, 17, 16),
    "mains": ("mains-only", True, "source", "mains", "battery", "battery", "mains"),
    "metered": ("unmetered-only", True, "link", "wifi", "cellular", "cellular", "wired"),
    "quiet-hours": ("quiet-hours", ("22:00-07:00",), "minute", 12 * 60, 23 * 60, 6 * 60 + 59, 7 * 60),
}


def test_every_rule_is_covered():
    assert RULES.keys() == BREACHES.keys()


@pytest.mark.parametrize("name", RULES)
def test_a_rule_breaks_beyond_its_limit_and_recovers_with_a_margin(name: str):
    key, limit, field, fine, bad, still_bad, good = RULES[name]
    rules = Rules.model_validate({key: limit})
    assert judge(rules, Conditions(**{field: fine})).eligibility is TRAIN
    broken = judge(rules, Conditions(**{field: bad}))
    assert (broken.eligibility, list(broken.why)) == (BREACHES[name][0], [name])
    assert broken.detail
    assert judge(rules, Conditions(**{field: still_bad}), broken).eligibility is broken.eligibility
    assert judge(rules, Conditions(**{field: good}), broken).eligibility is TRAIN


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_nothing_is_broken(name: str):
    _, _, field, _, bad, _, _ = RULES[name]
    assert judge(Rules(), Conditions(**{field: bad})).eligibility is TRAIN


@pytest.mark.parametrize("name", sorted(RULES.keys() - {"quiet-hours"}))
def test_an_unknown_condition_breaks_no_rule_and_is_listed(name: str):
    key, limit, field, _, bad, _, _ = RULES[name]
    rules = Rules.model_validate({key: limit})
    assert judge(rules, Conditions()).eligibility is TRAIN
    assert unknown(rules, Conditions()) == (key,)
    assert unknown(rules, Conditions(**{field: bad})) == unknown(Rules(), Conditions()) == ()


def test_a_lasting_breach_outweighs_a_temporary_one():
    rules = Rules(max_temperature_c=70, mains_only=True)
    verdict = judge(rules, Conditions(celsius=80, source="battery"))
    assert verdict.eligibility is INFER_ONLY
    assert verdict.detail == "80 °C, at most 70 °C; on battery, mains only"


def test_quiet_hours_may_span_midnight_and_exclude_their_end():
    # 22:00 is minute 1320, 07:00 minute 420.
    assert [is_quiet(("22:00-07:00",), m) for m in (1319, 1320, 0, 419, 420)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert [is_quiet(("08:00-09:00", "10:00-11:00"), 60 * h) for h in (8, 9, 10)] == [True, False, True]


def test_the_owner_decides_which_links_are_metered():
    rules = Rules(unmetered_only=True, metered=("wifi",))
    assert judge(rules, Conditions(link="wifi")).eligibility is INFER_ONLY
    assert judge(rules, Conditions(link="cellular")).eligibility is TRAIN


def test_conditions_are_read_from_the_board(tmp_path):
    # Four cores and a load of 1.25; the battery hat discharges; the cheapest default route is over Wi-Fi.
    now = conditions(cores=4, root=tree(tmp_path, PI))
    assert (now.celsius, now.battery, now.source, now.link) == (61.225, 42, "battery", "wifi")
    assert (now.load, now.memory_pressure) == (0.3125, 12.5)
    assert 0 <= now.minute < 24 * 60


def test_unreadable_battery_and_missing_sensor_break_no_rule(tmp_path):
    odd = {
        "sys/class/power_supply/hat/capacity": b"\xff\x00 plenty",
        "sys/class/thermal/thermal_zone0/temp": None,
        "proc/loadavg": "a lot",
    }
    now = conditions(cores=4, root=tree(tmp_path, PI, odd))
    rules = Rules(min_battery_percent=50, max_temperature_c=40, max_load=0.1)
    assert judge(rules, now).eligibility is TRAIN
    assert unknown(rules, now) == ("max-temperature-c", "min-battery-percent", "max-load")
