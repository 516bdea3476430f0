"""Whom a run leaves out when it gives up a round: all who had a part, or those who stand out, or half."""

from edge_server.rounds.reputation import ReputationRules, quarantined, replay_strikes
from edge_server.rounds.suspects import choose_suspects

ALIKE = {name: {"model": size} for name, size in zip("abcde", (1.0, 1.1, 0.9, 1.2, 0.8), strict=True)}
RULES = ReputationRules(after=3, window=10, rounds=5)


def test_all_who_had_a_part_are_left_out_where_enough_others_are_there() -> None:
    assert choose_suspects({"a": {}, "b": {}}, "abcd", 2) == ("a", "b")


def test_where_all_had_a_part_whoever_stands_out_is_left_out() -> None:
    assert choose_suspects({**ALIKE, "c": {"model": 1.0, "control: largest": 1e5}}, "abcde", 1) == ("c",)
    assert choose_suspects({**ALIKE, "b": {"model": 1.0, "examples": 1e12}}, "abcde", 1) == ("b",)


def test_where_nobody_stands_out_half_are_left_out_the_largest_first() -> None:
    assert choose_suspects(ALIKE, "abcde", 1) == ("a", "b", "d")


def test_where_only_names_are_known_half_of_them_are_left_out() -> None:
    assert choose_suspects({name: {} for name in "abcd"}, "abcd", 1) == ("a", "b")


def test_as_many_stay_as_a_round_needs() -> None:
    assert choose_suspects(ALIKE, "abcde", 4) == ("d",)
    assert choose_suspects(ALIKE, "abcde", 5) == ()


def test_a_part_in_an_undone_round_is_a_quarantine_whatever_the_rules_say_of_strikes() -> None:
    for after in (0, 3):
        rules = ReputationRules(after=after, rounds=5)
        reputations = replay_strikes([("a", 4, "rolled-back")], rules)
        assert quarantined(reputations, 9) == {"a": 9}
        assert quarantined(reputations, 10) == {}
        assert "round 3" in reputations["a"].cause


def test_what_is_forgiven_counts_no_more_and_ends_the_quarantine_that_it_led_to() -> None:
    strikes = [("a", 2, "not-finite"), ("a", 3, "not-finite"), ("a", 4, "not-finite")]
    assert quarantined(replay_strikes(strikes, RULES), 5) == {"a": 9}
    assert quarantined(replay_strikes([*strikes, ("a", 4, "forgiven")], RULES), 5) == {}
    again = [*strikes[:2], ("a", 2, "forgiven"), strikes[2]]
    assert quarantined(replay_strikes(again, RULES), 5) == {}
    assert quarantined(replay_strikes([("a", 4, "rolled-back"), ("a", 4, "forgiven")], RULES), 5) == {}
