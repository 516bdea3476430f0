"""Availability of devices: the same answers in any order, and spells of the board's mean length."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from edge_server.config.board_profiles import profile
from edge_server.simulation.availability import Availability
from schemas.errors import InvariantError

BOARD = replace(profile("pi-4"), online_s=30.0, offline_s=10.0)


def device(name: str = "device-0001", seed: int = 0) -> Availability:
    return Availability(BOARD, seed=seed, device=name)


def changes(availability: Availability, count: int) -> list[float]:
    times = [0.0]
    for _ in range(count):
        times.append(availability.next_change(times[-1]))
    return times


def test_the_answer_does_not_depend_on_the_order_of_the_questions():
    times = [float(t) for t in range(0, 2000, 7)]
    forwards, backwards = device(), device()
    asked = [(forwards.online(t), forwards.next_change(t)) for t in times]
    again = [(backwards.online(t), backwards.next_change(t)) for t in reversed(times)]
    assert asked == again[::-1]


def test_another_name_or_another_seed_has_other_spells():
    changed = changes(device(), 5)
    assert changed == changes(device(), 5)
    assert changed != changes(device("device-0002"), 5)
    assert changed != changes(device(seed=1), 5)


def test_a_device_turns_exactly_at_a_change_and_not_before():
    availability = device()
    for begins, ends in pairwise(changes(availability, 50)):
        state = availability.online(begins)
        assert begins < ends
        assert availability.next_change(math.nextafter(ends, 0.0)) == ends
        assert availability.online(math.nextafter(ends, 0.0)) == state
        assert availability.online(ends) != state


def test_spells_are_as_long_as_the_boards_on_average():
    # The mean of 2,000 exponential spells of mean m is off by m / sqrt(2000) = 2.2 %; 10 % is over 4 of that.
    availability = device()
    spells = [
        (availability.online(begins), ends - begins) for begins, ends in pairwise(changes(availability, 4000))
    ]
    there, away = ([length for state, length in spells if state == kind] for kind in (True, False))
    assert np.mean(there) == pytest.approx(30.0, rel=0.1)
    assert np.mean(away) == pytest.approx(10.0, rel=0.1)
    # An exponential law's deviation is its mean.
    assert np.std(there) == pytest.approx(30.0, rel=0.2)


def test_at_the_start_and_later_the_same_share_of_devices_is_there():
    # 30 / (30 + 10) = 0.75; of 2,000 devices the share is off by sqrt(0.75 * 0.25 / 2000) = 0.01.
    devices = [device(f"device-{number}") for number in range(2000)]
    for t in (0.0, 5.0, 100.0):
        assert np.mean([device.online(t) for device in devices]) == pytest.approx(0.75, abs=0.04)


def test_a_board_that_is_never_away_is_always_there():
    ideal = Availability(profile("ideal"), seed=0, device="device-0001")
    assert ideal.online(0.0)
    assert ideal.online(1e12)
    assert ideal.next_change(0.0) == math.inf


def test_the_end_of_time_is_refused_where_devices_come_and_go():
    with pytest.raises(InvariantError, match="finite"):
        device().online(math.inf)
