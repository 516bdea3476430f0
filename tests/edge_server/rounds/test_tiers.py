"""A device's tier: the tier that it states, otherwise one derived from its memory."""

import itertools

import pytest

from edge_server.rounds.fleet import GIB, tier_of
from schemas.values import CapabilityProfile


def of_memory(gib: float) -> CapabilityProfile:
    return CapabilityProfile(memory_bytes=int(gib * GIB))


@pytest.mark.parametrize(
    ("gib", "tier"),
    [(0.5, 1), (0.999, 1), (1, 2), (1.9, 2), (2, 3), (3.9, 3), (4, 4), (7.9, 4), (8, 5), (1000, 5)],
)
def test_five_tiers_begin_at_1_2_4_and_8_gib(gib, tier):
    assert tier_of(of_memory(gib), 5) == tier


@pytest.mark.parametrize(
    ("tiers", "by_step"),
    [
        (1, [1, 1, 1, 1, 1]),
        (2, [1, 1, 1, 2, 2]),  # half a step rounds to the even side: 1 + round(0.5) = 1
        (3, [1, 1, 2, 3, 3]),  # and 1 + round(1.5) = 3
        (9, [1, 3, 5, 7, 9]),
    ],
)
def test_fewer_or_more_tiers_are_spread_over_the_same_steps(tiers, by_step):
    # Steps 0 to 4 of 4 become 1 + step * (tiers - 1) / 4, rounded.
    assert [tier_of(of_memory(gib), tiers) for gib in (0.5, 1, 2, 4, 8)] == by_step


@pytest.mark.parametrize("tiers", [1, 2, 3, 5, 8, 100])
def test_more_memory_never_means_a_weaker_tier_and_both_ends_are_used(tiers):
    found = [tier_of(of_memory(gib), tiers) for gib in (0.1, 1, 2, 4, 8, 64)]
    assert all(before <= after for before, after in itertools.pairwise(found))
    assert (found[0], found[-1]) == (1, tiers)


@pytest.mark.parametrize(("stated", "tier"), [(1, 1), (3, 3), (5, 5), (6, 5), (100, 5)])
def test_a_stated_tier_takes_precedence_over_memory(stated, tier):
    for memory in (0, 64 * GIB):
        assert tier_of(CapabilityProfile(tier=stated, memory_bytes=memory), 5) == tier


def test_a_device_without_known_capabilities_is_in_the_weakest_tier():
    assert tier_of(CapabilityProfile(), 5) == 1
