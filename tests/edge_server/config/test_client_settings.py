"""`[clients]`: over-selection and the buffered mode, and the round rules made of them."""

import pytest

from edge_server.config.config import Config
from edge_server.config.load import check_config
from edge_server.coordinator.round_rules import make_rules
from edge_server.rounds.machine import Buffering, RoundRules
from schemas.errors import ConfigError


def config(**clients: object) -> Config:
    return check_config({"clients": {key.replace("_", "-"): value for key, value in clients.items()}}, "home")


def rules(**clients: object) -> RoundRules:
    return make_rules(config(**clients))


def test_rounds_are_synchronous_and_select_no_more_than_needed_unless_stated():
    assert (rules().buffering, rules().over_select) == (None, 1.0)
    assert rules(over_select=1.3).over_select == 1.3


def test_in_buffered_mode_all_devices_train_at_once_unless_stated():
    stated = {"mode": "buffered", "num_clients": 50}
    assert rules(**stated).buffering == Buffering(10, max_staleness=20, concurrency=50)
    chosen = rules(**stated, buffer_size=4, max_staleness=2, concurrency=8)
    assert chosen.buffering == Buffering(4, max_staleness=2, concurrency=8)


def test_in_synchronous_mode_the_buffers_keys_have_no_effect():
    assert rules(buffer_size=40, concurrency=2).buffering is None


IMPOSSIBLE = {
    "a buffer larger than the number of clients": (
        {"mode": "buffered", "num_clients": 5, "buffer_size": 6},
        "[clients] buffer-size 6 is more than num-clients 5",
    ),
    "a buffer larger than the concurrency": (
        {"mode": "buffered", "num_clients": 9, "buffer_size": 6, "concurrency": 4},
        "[clients] buffer-size 6 is more than concurrency 4",
    ),
    "over-selection in buffered mode": (
        {"mode": "buffered", "num_clients": 9, "buffer_size": 6, "over_select": 1.5},
        "[clients] over-select is for mode 'rounds'",
    ),
    "fewer than needed": ({"over_select": 0.9}, "[clients] over-select: input should be greater than or eq"),
    "an empty buffer": ({"buffer_size": 0}, "[clients] buffer-size: input should be greater than or equal"),
    "a selector that is none": (
        {"where": "site=="},
        "[clients] where: 'site==' is not a condition",
    ),
    "negative staleness": ({"max_staleness": -1}, "[clients] max-staleness: input should be greater"),
    "an unknown mode": ({"mode": "async"}, "[clients] mode: input should be 'rounds' or 'buffered'"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_impossible_settings_are_refused_with_the_reason(what):
    clients, message = IMPOSSIBLE[what]
    with pytest.raises(ConfigError) as error:
        config(**clients)
    assert str(error.value).startswith(f"home: {message}")


@pytest.mark.parametrize(
    ("section", "table", "message"),
    [
        ("tiers", {"by-label": {"role=scale": 9}}, "[tiers] by-label: 'role=scale' = 9: tiers are 1 to 5"),
        ("tiers", {"by-label": {"a=": 1}}, "[tiers] by-label: 'a='"),
        ("simulation", {"labels": ["site"]}, "[simulation] labels: 'site': a label is KEY=VALUE"),
    ],
)
def test_wrong_labels_are_refused_with_the_reason(section, table, message):
    with pytest.raises(ConfigError) as error:
        check_config({section: table}, "home")
    assert message in str(error.value)
