"""The table `[alerts]`: values with units, names, and what is refused with a remedy."""

import pytest
from pydantic import ValidationError

from edge_server.config.errors import explain
from edge_server.config.measures import parse_bytes, parse_celsius, parse_duration, parse_share
from edge_server.fleet.settings.alert_kinds import RULE_KINDS
from edge_server.fleet.settings.alerts import AlertSettings
from schemas.errors import ConfigError

HOOK = {"hook": {"kind": "webhook", "url": "https://example.org/hook"}}


def settings(*rules: dict, receivers: dict | None = None) -> AlertSettings:
    return AlertSettings.model_validate(
        {"rules": rules, "receivers": HOOK if receivers is None else receivers}
    )


def refusal(*rules: dict, receivers: dict | None = None) -> str:
    with pytest.raises(ValidationError) as caught:
        settings(*rules, receivers=receivers)
    return str(explain(caught.value, AlertSettings, "service.toml"))


@pytest.mark.parametrize("when", RULE_KINDS)
def test_every_kind_says_what_it_finds_and_has_a_default_in_its_unit(when):
    kind = RULE_KINDS[when]
    assert kind.about.startswith(("a device", "a run", "a job"))
    assert bool(kind.value) is bool(kind.default)
    (rule,) = settings({"when": when}).parsed_rules()
    assert (rule.threshold > 0) is bool(kind.value)


def test_values_are_read_in_their_units():
    assert parse_duration("90 s") == 90
    assert parse_duration("1.5h") == 5400
    assert parse_duration("2w") == 1_209_600
    assert parse_bytes("1.5 GB") == 1.5e9
    assert parse_celsius("78.5 C") == parse_celsius("78.5") == 78.5
    assert parse_share("5%") == parse_share("0.05") == pytest.approx(0.05)


@pytest.mark.parametrize("text", ["", "h", "2 hours ago", "-3s", "1e3s", "5%", "2 GB"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError, match="is not a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["11575d", "99999999999999999d", "9" * 400 + "s"])
def test_a_duration_without_an_end_is_refused(text):
    with pytest.raises(ConfigError, match="too long: at most 11574d"):
        parse_duration(text)


def test_a_rule_has_base_units_its_kinds_default_and_all_receivers():
    (silent, disk) = settings(
        {"when": "silent-for", "value": "30min", "where": "site=barn", "for": "5m", "repeat": "4h"},
        {"when": "disk-free-below", "name": "full", "severity": "critical", "to": []},
    ).parsed_rules()
    assert (silent.name, silent.threshold, silent.for_s, silent.repeat_s) == ("silent-for", 1800, 300, 14_400)
    assert silent.to == ("hook",)
    assert str(silent.where) == "site=barn"
    assert (disk.name, disk.threshold, disk.severity, disk.to) == ("full", 1e9, "critical", ())


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"when": "silent"}, "there is no kind of rule 'silent' (did you mean 'silent-for'?)"),
        ({"when": "temperature-above", "value": "2h"}, "value of 'temperature-above': '2h' is not degrees"),
        ({"when": "silent-for", "value": 7200}, "value of 'silent-for': '7200' is not a duration such as"),
        ({"when": "accuracy-fell", "value": 5}, "'5' is more than the whole: write a share such as"),
        ({"when": "drift", "value": 1}, "'drift' takes no value: remove value = 1"),
        ({"when": "refused-times", "value": 2.5}, "'2.5' is not a whole number such as 5"),
        ({"when": "drift", "where": "site=="}, "is not a condition on a label"),
        ({"when": "drift", "repeat": "1s"}, "less than a minute"),
        ({"when": "drift", "repeat": 3600}, "'3600' has no unit: write a duration such as"),
        ({"when": "drift", "to": ["hok"]}, "there is no receiver 'hok' (did you mean 'hook'?)"),
        ({"when": "drift", "severty": "info"}, "unknown key 'severty' (did you mean 'severity'?)"),
    ],
)
def test_a_wrong_rule_is_refused_in_one_line(rule, says):
    text = refusal(rule)
    assert says in text
    assert text.startswith("service.toml: ")
    assert len(text.splitlines()) == 1


def test_two_rules_of_one_name_are_refused():
    assert "2 rules are called 'drift': give each a name" in refusal({"when": "drift"}, {"when": "drift"})


@pytest.mark.parametrize(
    ("receiver", "says"),
    [
        ({"kind": "webook", "url": "http://a/"}, "there is no kind 'webook' (did you mean 'webhook'?)"),
        ({"kind": "webhook", "url": "example.org"}, "'example.org' is not a web address such as"),
        ({"kind": "smtp", "host": "mail", "sender": "a", "recipients": ["b@c"]}, "sender"),
        ({"kind": "smtp", "host": "mail", "sender": "a@b", "recipients": []}, "recipients"),
    ],
)
def test_a_wrong_receiver_is_refused(receiver, says):
    assert says in refusal(receivers={"ops": receiver})
