"""Reputation: strikes per round, quarantine after too many, no strikes for honest failures."""

import pytest

from edge_server.rounds.reputation import (
    WEIGHTS,
    Reputation,
    ReputationRules,
    quarantined_devices,
    replay_strikes,
)
from schemas.errors import Reason

RULES = ReputationRules(after=2, window=3, rounds=4)
HONEST = (
    Reason.TASK_FAILED,
    Reason.BAD_GRAPH,
    Reason.STALE_ROUND,
    Reason.NOT_SELECTED,
    Reason.ALREADY_COUNTED,
    Reason.INCOMPATIBLE,
    Reason.UNKNOWN_BLOB,
    Reason.QUARANTINED,
    Reason.UNKNOWN_KIND,
    Reason.UNSUPPORTED_PROTOCOL,
    Reason.WRONG_FEDERATION,
    Reason.UNTRUSTED,
    Reason.NOT_ENTITLED,
    Reason.SAME_NAME,
    Reason.SUPERSEDED,
    Reason.TOO_MANY_REQUESTS,
    Reason.NO_SPACE,
    Reason.INELIGIBLE,
    Reason.NO_MEMORY,
    Reason.EXAGGERATED,
)
NAN, DAMAGED = Reason.NOT_FINITE, Reason.DIGEST_MISMATCH


def out(*rows: tuple[int, Reason], at: int, rules: ReputationRules = RULES) -> dict[str, int]:
    """Which devices are excluded from round `at` after these refusals of device `a`."""
    return quarantined_devices(replay_strikes([("a", number, reason) for number, reason in rows], rules), at)


def test_too_many_strikes_within_the_window_lead_to_quarantine():
    assert out((1, NAN), at=2) == {}
    assert out((1, NAN), (3, NAN), at=4) == {"a": 7}
    # The window of round 4 begins with round 2.
    assert out((1, NAN), (4, NAN), at=5) == {}


def test_a_quarantine_ends_and_leaves_a_clean_slate():
    rows = ((1, NAN), (2, NAN))
    assert [bool(out(*rows, at=number)) for number in (2, 6, 7)] == [True, True, False]
    assert out(*rows, (7, NAN), at=8) == {}
    assert out(*rows, (7, NAN), (8, NAN), at=9) == {"a": 12}


def test_a_round_counts_once_with_its_worst_strike():
    assert out(*[(1, NAN)] * 50, *[(1, DAMAGED)] * 50, at=2) == {}
    assert replay_strikes([("a", 1, DAMAGED), ("a", 1, NAN)], RULES) == {"a": Reputation({1: 1.0})}


def test_an_update_that_may_have_been_damaged_in_transit_counts_half():
    assert out((1, DAMAGED), (2, DAMAGED), (3, DAMAGED), at=4) == {}
    assert out((1, DAMAGED), (2, DAMAGED), (3, NAN), at=4) == {"a": 7}


@pytest.mark.parametrize("reason", HONEST)
def test_honest_failures_never_count(reason):
    assert replay_strikes([("a", number, reason) for number in range(1, 9)], RULES) == {}


def test_every_reason_is_either_honest_or_weighed():
    assert set(Reason) == set(HONEST) | set(WEIGHTS)


def test_quarantine_can_be_switched_off():
    assert replay_strikes([("a", number, NAN) for number in range(9)], ReputationRules(after=0)) == {}


def test_devices_are_judged_separately():
    reputations = replay_strikes([("a", 1, NAN), ("b", 1, NAN), ("a", 2, NAN)], RULES)
    assert quarantined_devices(reputations, 3) == {"a": 6}


def test_no_more_strikes_are_stored_than_the_window_has_rounds():
    reputations = replay_strikes(
        [("a", number, DAMAGED) for number in range(1, 500)], ReputationRules(1000, 1000, 1)
    )
    assert len(reputations["a"].strikes) == 499
    reputations = replay_strikes(
        [("a", number, DAMAGED) for number in range(1, 500)], ReputationRules(9, 10, 1)
    )
    assert len(reputations["a"].strikes) == 10
