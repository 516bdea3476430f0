"""The selection of the strongest tier's devices alone."""

import numpy as np

from edge_server.strategy.selection.policies import Client, LargestTier

CLIENTS = [Client("a", 1), Client("b", 3), Client("c", 2), Client("d", 3)]


def test_only_devices_of_the_strongest_tier_are_chosen() -> None:
    policy, random = LargestTier(), np.random.default_rng(0)
    assert policy.act(None, CLIENTS, 4, random) == ("b", "d")
    assert {policy.act(None, CLIENTS, 1, random) for _ in range(40)} == {("b",), ("d",)}


def test_the_strongest_tier_is_the_strongest_that_is_present() -> None:
    assert LargestTier().act(None, CLIENTS[::2], 2, np.random.default_rng(0)) == ("c",)


def test_devices_of_other_tiers_are_explained() -> None:
    why = LargestTier().explain(None, CLIENTS, {"b"})
    assert why("a").because == "its tier does not take part"
    assert why("b").because.startswith("drawn")
    assert why("d").because.startswith("not drawn")
