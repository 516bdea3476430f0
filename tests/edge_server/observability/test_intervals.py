"""Confidence intervals against published and simple numbers."""

import pytest

from edge_server.observability.report.figure_tables import over_devices, wilson


def test_the_interval_of_a_share_is_wilsons() -> None:
    # Newcombe 1998, table I, method 3: 81 of 263 is 0.2553 to 0.3662, 0 of 20 is 0 to 0.1611.
    assert wilson(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0.0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert wilson(0.5, 0) is None


def test_the_interval_over_devices_is_as_wide_as_they_differ() -> None:
    assert over_devices([0.5, 0.5, 0.5], [1, 2, 3], power=1) == (0.5, 0.5)
    low, high = over_devices([0.2, 0.4, 0.6, 0.8], [1, 1, 1, 1], power=1) or (0, 0)
    assert 0.2 < low < 0.4
    assert 0.6 < high < 0.8
    assert over_devices([0.2, 0.4], [1, 1], power=1) is None


def test_roots_of_squares_are_resampled_as_squares() -> None:
    low, high = over_devices([1.0, 1.0, 1.0], [1, 1, 1], power=2) or (0, 0)
    assert (low, high) == (1, 1)
