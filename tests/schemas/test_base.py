"""Names of devices at sites."""

import pytest

from schemas.base import is_of_site, site_of


@pytest.mark.parametrize(
    ("device", "site"),
    [
        ("barn.pi-1", "barn"),
        ("north.barn.pi-1", "north"),
        ("barnyard.pi", ""),
        ("barn", ""),
        ("pi-1", ""),
        ("north.pi", "north"),
    ],
)
def test_a_device_is_reached_by_the_first_site_on_the_way_to_it(device, site):
    assert site_of(device, ["north.barn", "barn", "north"]) == site


def test_a_site_may_lie_within_another():
    assert is_of_site("north.barn", "north")
    assert site_of("north.barn.pi-1", ["north.barn"]) == "north.barn"
