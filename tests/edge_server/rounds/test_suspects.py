"""Which devices a rollback excludes: all contributors of the undone round, the outliers, or half."""

from edge_server.rounds.reputation import ReputationRules, quarantined_devices, replay_strikes
from edge_server.rounds.rollback import choose_suspects

ALIKE = {name: {"model": size} for name, size in zip("abcde", (1.0, 1.1, 0.9, 1.2, 0.8), strict=True)}
RULES = ReputationRules(after=3, window=10, rounds=5)


def test_all_contributors_are_excluded_if_enough_other_devices_remain() -> None:
    assert choose_suspects({"a": {}, "b": {}}, "abcd", 2) == ("a", "b")


def test_if_all_devices_contributed_the_outlier_is_excluded() -> None:
    assert choose_suspects({**ALIKE, "c": {"model": 1.0, "control: largest": 1e5}}, "abcde", 1) == ("c",)
    assert choose_suspects({**ALIKE, "b": {"model": 1.0, "examples": 1e12}}, "abcde", 1) == ("b",)


def test_without_an_outlier_half_are_excluded_the_largest_first() -> None:
    assert choose_suspects(ALIKE, "abcde", 1) == ("a", "b", "d")


def test_without_measurements_half_of_the_devices_are_excluded() -> None:
    assert choose_suspects({name: {} for name in "abcd"}, "abcd", 1) == ("a", "b")


def test_as_many_devices_remain_as_a_round_needs() -> None:
    assert choose_suspects(ALIKE, "abcde", 4) == ("d",)
    assert choose_suspects(ALIKE, "abcde", 5) == ()


def test_contributing_to_an_undone_round_leads_to_quarantine_under_any_strike_rules() -> None:
    for after in (0, 3):
        rules = ReputationRules(after=after, rounds=5)
        reputations = replay_strikes([("a", 4, "rolled-back")], rules)
        assert quarantined_devices(reputations, 9) == {"a": 9}
        assert quarantined_devices(reputations, 10) == {}
        assert "round 3" in reputations["a"].cause


def test_a_forgiven_strike_no_longer_counts_and_ends_its_quarantine() -> None:
    strikes = [("a", 2, "not-finite"), ("a", 3, "not-finite"), ("a", 4, "not-finite")]
    assert quarantined_devices(replay_strikes(strikes, RULES), 5) == {"a": 9}
    assert quarantined_devices(replay_strikes([*strikes, ("a", 4, "forgiven")], RULES), 5) == {}
    again = [*strikes[:2], ("a", 2, "forgiven"), strikes[2]]
    assert quarantined_devices(replay_strikes(again, RULES), 5) == {}
    assert (
        quarantined_devices(replay_strikes([("a", 4, "rolled-back"), ("a", 4, "forgiven")], RULES), 5) == {}
    )
