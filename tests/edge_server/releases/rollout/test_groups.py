"""Rollout groups are deterministic, have the requested size and spread each tier over all groups."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_server.releases.rollout.groups import groups_of, missing_tiers
from edge_server.releases.rollout.state import RolloutRules, is_size

FLEET = {f"pi-{number}": 1 + number % 5 for number in range(100)}


def test_groups_do_not_depend_on_the_order_of_the_devices() -> None:
    reversed_fleet = dict(reversed(FLEET.items()))
    assert groups_of(FLEET, "v1", canary=10, groups=3) == groups_of(reversed_fleet, "v1", canary=10, groups=3)


def test_another_version_has_another_canary() -> None:
    first = [set(groups_of(FLEET, version, canary=10, groups=3)[0]) for version in ("v1", "v2")]
    assert first[0] != first[1]


def test_a_canary_of_ten_percent_contains_ten_percent_of_each_tier() -> None:
    # 100 devices, 20 of each of five tiers: a canary of ten contains two of each.
    canary = groups_of(FLEET, "v1", canary=10, groups=3)[0]
    assert sorted(FLEET[device] for device in canary) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert missing_tiers(FLEET, canary) == ()


def test_missing_tiers_of_a_small_canary_are_listed() -> None:
    canary = groups_of(FLEET, "v1", canary=1, groups=1)[0]
    assert len(missing_tiers(FLEET, canary)) == 4


@settings(max_examples=30, deadline=None)
@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 5), min_size=1),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_every_device_is_in_one_group_and_no_group_is_empty(fleet, canary, groups) -> None:
    formed = groups_of(fleet, "v1", canary=canary, groups=groups)
    assert sorted(device for group in formed for device in group) == sorted(fleet)
    assert all(formed)
    sizes = [len(group) for group in formed[1:]]
    assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("canary", "devices", "size"),
    # Rounded up: 10% of 30 are three, of 31 four. At least one device, and at most all of them.
    [
        ("10%", 30, 3),
        ("10%", 31, 4),
        ("10%", 3, 1),
        ("3", 10, 3),
        ("3", 2, 2),
        ("100%", 7, 7),
        ("0.5%", 7, 1),
    ],
)
def test_the_size_of_the_canary(canary: str, devices: int, size: int) -> None:
    assert RolloutRules(canary=canary).canary_of(devices) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "10 %", "101%", "ten", "1e3", "5.5"])
def test_an_invalid_size_is_refused(text: str) -> None:
    assert not is_size(text)
