"""Boards by name and by tier, and the arithmetic behind their figures."""

import pytest

from edge_server.config.board_profiles import PROFILES, for_tier, profile
from edge_server.rounds.fleet import tier_of
from schemas.errors import ConfigError, InvariantError
from schemas.values import CapabilityProfile

FIVE = ("pi-zero-2", "pi-3", "pi-4", "pi-5", "jetson-nano")
MEASURED = [name for name in PROFILES if name != "ideal"]


def test_a_board_is_found_by_its_name_and_an_unknown_one_names_the_nearest():
    assert all(profile(name).name == name for name in PROFILES)
    with pytest.raises(ConfigError, match=r"no board is called 'pi-6' \(did you mean 'pi-"):
        profile("pi-6")


@pytest.mark.parametrize(
    ("name", "gflops"),
    [
        # 0.25 * 2 * 11.889 * 2459.22 / 5900.85 / 1.4: the Pi 4's HPL, by sysbench, by clock.
        ("pi-zero-2", 1.7696),
        # 0.25 * 2 * 11.889 * 0.416757 = 5.9445 * 0.416757.
        ("pi-3-a", 2.4774),
        ("pi-3", 2.4774),
        ("pi-4", 5.9445),  # 0.25 * 2 * 11.889
        ("pi-5", 15.1245),  # 0.25 * 2 * 30.249
        ("jetson-nano", 58.9824),  # 0.25 * 2 * 128 * 0.9216
        ("jetson-orin", 320.0),  # 0.25 * 2 * 1024 * 0.625
    ],
)
def test_the_training_rate_follows_from_the_stated_source(name: str, gflops: float):
    assert profile(name).training_flops / 1e9 == pytest.approx(gflops, rel=1e-4)


def test_boards_are_listed_from_the_slowest_to_the_fastest():
    rates = [board.training_flops for board in PROFILES.values()]
    assert rates == sorted(rates)


@pytest.mark.parametrize("name", MEASURED)
def test_every_source_names_its_estimates_and_assumptions(name: str):
    source = profile(name).source
    assert all(word in source for word in ("data sheet", "estimate", "assumptions"))


@pytest.mark.parametrize("name", MEASURED)
def test_what_a_process_can_take_is_less_than_the_memory_by_what_the_system_takes(name: str):
    # On the Pi Zero 2 W: 512 MiB less 233,696 KiB are 290,592 KiB.
    board = profile(name)
    assert board.memory_bytes - board.available_bytes == 290_592 * 1024


@pytest.mark.parametrize(
    ("name", "tier"), [("pi-zero-2", 1), ("pi-3-a", 1), ("pi-3", 2), ("pi-4", 4), ("pi-5", 5)]
)
def test_memory_puts_a_board_into_the_tier_of_a_real_board(name: str, tier: int):
    # Steps at 1, 2, 4 and 8 GiB: 0.5 GiB reaches none, 1 GiB one, 4 GiB three, 8 GiB all four.
    assert tier_of(CapabilityProfile(memory_bytes=profile(name).memory_bytes), 5) == tier


def test_with_as_many_tiers_as_boards_each_tier_has_its_own_board():
    assert tuple(for_tier(tier, 5, FIVE) for tier in range(1, 6)) == FIVE


def test_fewer_tiers_than_boards_keep_the_weakest_and_the_strongest():
    # floor((tier - 1) * 4 / 2): 0, 2, 4.
    assert [for_tier(tier, 3, FIVE) for tier in (1, 2, 3)] == ["pi-zero-2", "pi-4", "jetson-nano"]


def test_more_tiers_than_boards_share_them_and_a_tier_between_two_boards_gets_the_weaker():
    # floor((tier - 1) * 1 / 4): 0, 0, 0, 0, 1.
    assert [for_tier(tier, 5, ("a", "b")) for tier in range(1, 6)] == ["a", "a", "a", "a", "b"]


def test_a_single_tier_has_the_first_board():
    assert for_tier(1, 1, FIVE) == "pi-zero-2"


@pytest.mark.parametrize(("tier", "names"), [(0, FIVE), (6, FIVE), (1, ())])
def test_an_unknown_tier_or_no_boards_is_an_invariant_error(tier: int, names: tuple[str, ...]):
    with pytest.raises(InvariantError):
        for_tier(tier, 5, names)
