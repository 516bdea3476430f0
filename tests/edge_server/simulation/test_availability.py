"""Availability of devices: equal answers in any order, and spells of the board's mean length."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from edge_server.config.board_profiles import profile
from edge_server.simulation.simulator import Availability
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
    first = [(forwards.online(t), forwards.next_change(t)) for t in times]
    again = [(backwards.online(t), backwards.next_change(t)) for t in reversed(times)]
    assert first == again[::-1]


def test_another_name_or_another_seed_has_other_spells():
    changed = changes(device(), 5)
    assert changed == changes(device(), 5)
    assert changed != changes(device("device-0002"), 5)
    assert changed != changes(device(seed=1), 5)


def test_a_device_changes_exactly_at_a_change_and_not_before():
    availability = device()
    for begins, ends in pairwise(changes(availability, 50)):
        state = availability.online(begins)
        assert begins < ends
        assert availability.next_change(math.nextafter(ends, 0.0)) == ends
        assert availability.online(math.nextafter(ends, 0.0)) == state
        assert availability.online(ends) != state


def test_spells_are_as_long_as_the_boards_on_average():
    # The mean of 2,000 exponential spells deviates by 1 / sqrt(2000) = 2.2 %; 10 % is over 4 deviations.
    availability = device()
    spells = [
        (availability.online(begins), ends - begins) for begins, ends in pairwise(changes(availability, 4000))
    ]
    online, offline = ([length for state, length in spells if state == kind] for kind in (True, False))
    assert np.mean(online) == pytest.approx(30.0, rel=0.1)
    assert np.mean(offline) == pytest.approx(10.0, rel=0.1)
    # The standard deviation of an exponential distribution is its mean.
    assert np.std(online) == pytest.approx(30.0, rel=0.2)


def test_the_share_of_online_devices_is_the_same_at_the_start_and_later():
    # 30 / (30 + 10) = 0.75; the share of 2,000 devices deviates by sqrt(0.75 * 0.25 / 2000) = 0.01.
    devices = [device(f"device-{number}") for number in range(2000)]
    for t in (0.0, 5.0, 100.0):
        assert np.mean([device.online(t) for device in devices]) == pytest.approx(0.75, abs=0.04)


def test_a_board_without_offline_spells_is_always_online():
    ideal = Availability(profile("ideal"), seed=0, device="device-0001")
    assert ideal.online(0.0)
    assert ideal.online(1e12)
    assert ideal.next_change(0.0) == math.inf


def test_an_infinite_time_is_refused_for_devices_with_spells():
    with pytest.raises(InvariantError, match="finite"):
        device().online(math.inf)
