"""Who is there: births and last wills in any order."""

import itertools

import pytest

from edge_server.rounds.fleet import Fleet
from schemas.messages import Birth, Death
from schemas.values import DataCard


def birth(device: str = "a", session: int = 1, examples: int = 10) -> Birth:
    card = DataCard(source="digits", examples=examples, input_shape=(1, 8, 8), num_classes=10)
    return Birth(federation="home", device=device, session=session, data=card)


def death(device: str = "a", session: int = 1) -> Death:
    return Death(federation="home", device=device, session=session)


def names(fleet: Fleet) -> list[str]:
    return [device.name for device in fleet.alive()]


def test_a_device_is_there_once_it_is_born():
    assert names(Fleet()) == []
    assert names(Fleet().born(birth())) == ["a"]


def test_devices_are_listed_by_name_in_whatever_order_they_came():
    for order in itertools.permutations("abc"):
        fleet = Fleet()
        for name in order:
            fleet = fleet.born(birth(name))
        assert names(fleet) == ["a", "b", "c"]


def test_a_last_will_ends_its_session_and_is_dated():
    fleet = Fleet().born(birth()).died(death(), 5.0)
    assert names(fleet) == []
    assert fleet.devices["a"].lost_at == 5.0


def test_a_last_will_told_twice_keeps_its_first_date():
    fleet = Fleet().born(birth()).died(death(), 5.0)
    assert fleet.died(death(), 9.0) == fleet


def test_the_last_will_of_an_older_session_changes_nothing():
    fleet = Fleet().born(birth(session=7))
    assert fleet.died(death(session=6), 5.0) == fleet


def test_the_last_will_of_a_newer_session_ends_the_device_too():
    # Its birth is on the way and will bring it back.
    fleet = Fleet().born(birth(session=7)).died(death(session=8), 5.0)
    assert names(fleet) == []


def test_the_last_will_of_a_stranger_changes_nothing():
    assert Fleet().died(death(), 5.0) == Fleet()


def test_a_device_returns_under_a_higher_session_with_what_it_says_now():
    fleet = Fleet().born(birth()).died(death(), 5.0).born(birth(session=2, examples=20))
    assert names(fleet) == ["a"]
    assert (fleet.devices["a"].session, fleet.devices["a"].data.examples) == (2, 20)


def test_a_birth_of_an_older_session_changes_nothing():
    fleet = Fleet().born(birth(session=7, examples=70))
    assert fleet.born(birth(session=6)) == fleet


def test_a_birth_told_again_changes_nothing():
    fleet = Fleet().born(birth())
    assert fleet.born(birth()) == fleet


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_late_last_will_never_kills_a_newer_session(order):
    # Session 1 is born and dies, session 2 is born; whatever comes late, the device is there in the end.
    fleet = Fleet()
    for index in order:
        arrives = [
            lambda f: f.born(birth()),
            lambda f: f.died(death(), 5.0),
            lambda f: f.born(birth(session=2)),
        ]
        fleet = arrives[index](fleet)
    assert names(fleet) == ["a"]


def test_one_device_does_not_touch_another():
    fleet = Fleet().born(birth("a")).born(birth("b")).died(death("a"), 5.0)
    assert names(fleet) == ["b"]
