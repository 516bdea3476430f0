"""`PersistentMap` behaves like a plain mapping after any number of changes."""

import pytest

from edge_server.rounds.fleet import FEW, PersistentMap


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 20 * FEW])
def test_it_equals_a_dict_that_is_copied_on_every_change(count: int) -> None:
    copied, known = {"first": 0}, PersistentMap({"first": 0})
    for number in range(count):
        # Every third change replaces the value of a known device.
        name = "first" if number % 3 == 2 else f"device-{number}"
        copied, known = {**copied, name: number}, known.with_value(name, number)
    assert dict(known) == copied
    assert list(known) == list(copied)
    assert len(known) == len(copied)
    assert "nobody" not in known


def test_a_change_leaves_the_earlier_map_unchanged() -> None:
    before = PersistentMap({"a": 1})
    after = before.with_value("a", 2).with_value("b", 3)
    assert (dict(before), dict(after)) == ({"a": 1}, {"a": 2, "b": 3})
