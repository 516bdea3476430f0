"""Which devices are alive after births and last wills in any order."""

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


def test_a_device_is_alive_after_its_birth():
    assert names(Fleet()) == []
    assert names(Fleet().born(birth())) == ["a"]


def test_devices_are_listed_by_name_in_any_order_of_arrival():
    for order in itertools.permutations("abc"):
        fleet = Fleet()
        for name in order:
            fleet = fleet.born(birth(name))
        assert names(fleet) == ["a", "b", "c"]


def test_a_last_will_ends_its_session_and_its_time_is_stored():
    fleet = Fleet().born(birth()).with_death(death(), 5.0)
    assert names(fleet) == []
    assert fleet.devices["a"].lost_at == 5.0


def test_a_repeated_last_will_keeps_its_first_time():
    fleet = Fleet().born(birth()).with_death(death(), 5.0)
    assert fleet.with_death(death(), 9.0) == fleet


def test_the_last_will_of_an_older_session_changes_nothing():
    fleet = Fleet().born(birth(session=7))
    assert fleet.with_death(death(session=6), 5.0) == fleet


def test_the_last_will_of_a_newer_session_ends_the_device_too():
    # The birth of the newer session is in transit and will make the device alive again.
    fleet = Fleet().born(birth(session=7)).with_death(death(session=8), 5.0)
    assert names(fleet) == []


def test_the_last_will_of_an_unknown_device_changes_nothing():
    assert Fleet().with_death(death(), 5.0) == Fleet()


def test_a_device_returns_under_a_higher_session_with_its_new_data():
    fleet = Fleet().born(birth()).with_death(death(), 5.0).born(birth(session=2, examples=20))
    assert names(fleet) == ["a"]
    assert (fleet.devices["a"].session, fleet.devices["a"].data.examples) == (2, 20)


def test_a_birth_of_an_older_session_changes_nothing():
    fleet = Fleet().born(birth(session=7, examples=70))
    assert fleet.born(birth(session=6)) == fleet


def test_a_repeated_birth_changes_nothing():
    fleet = Fleet().born(birth())
    assert fleet.born(birth()) == fleet


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_late_last_will_never_kills_a_newer_session(order):
    # Session 1 is born and dies, session 2 is born; in any order, the device is alive in the end.
    fleet = Fleet()
    for index in order:
        arrives = [
            lambda f: f.born(birth()),
            lambda f: f.with_death(death(), 5.0),
            lambda f: f.born(birth(session=2)),
        ]
        fleet = arrives[index](fleet)
    assert names(fleet) == ["a"]


def test_the_death_of_a_device_does_not_affect_another():
    fleet = Fleet().born(birth("a")).born(birth("b")).with_death(death("a"), 5.0)
    assert names(fleet) == ["b"]
