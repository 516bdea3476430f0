"""Trees of gateways that die and return end with the model of the flat federation.

`EDGE_TREES=200` tests so many trees (`make trees`).
"""

import os
import random
from dataclasses import replace

import pytest

from edge_server.rounds.machine import RoundRules
from tests.edge_server.rounds.site_world import SiteWorld

TREES = int(os.environ.get("EDGE_TREES", "4"))
PATIENT = RoundRules(
    rounds=2, deadline_s=10**6, rejoin_s=10**6, attempts=10**6, quorum=1.0, deliver=False, start_clients=4
)


def tree(draw: random.Random) -> tuple[list[str], list[str]]:
    """Sites within sites, up to three deep, and devices at any of them and at none."""
    sites: list[str] = []
    for number in range(draw.randrange(1, 6)):
        around = draw.choice(["", *(site for site in sites if site.count(".") < 2)])
        sites.append(f"{around}.s{number}".lstrip("."))
    devices = [f"{draw.choice(['', *sites])}.d{n}".lstrip(".") for n in range(draw.randrange(4, 9))]
    return devices, sites


def flat_digest(devices: list[str]) -> str:
    world = SiteWorld(devices, [], rules_for(devices))
    world.run_fairly(turns=10**7)
    return world.digest


def rules_for(devices: list[str]) -> RoundRules:
    return replace(PATIENT, start_clients=len(devices), min_clients=len(devices))


def disturbed(devices: list[str], sites: list[str], seed: int) -> SiteWorld:
    """A run on a bad network, in which gateways and devices die and return."""
    world = SiteWorld(devices, sites, rules_for(devices), seed)
    for _ in range(400):
        for _ in range(10):
            world.one_bad_turn(0.1)
        site = world.random.choice(sites)
        if world.random.random() < 0.08:
            world.kill_gateway(site)
        elif world.random.random() < 0.3:
            world.return_gateway(site)
        device = world.random.choice(devices)
        if not world.nodes[device].online:
            world.connect(device)
        elif world.random.random() < 0.03:
            world.random.choice([world.cut, world.kill, world.kill_and_remember])(device)
    world.run_fairly()
    return world


@pytest.mark.parametrize("seed", range(TREES))
def test_a_tree_of_gateways_that_die_and_return_ends_with_the_flat_model(seed: int):
    devices, sites = tree(random.Random(seed))
    world = disturbed(devices, sites, seed)
    assert world.outcome == "finished"
    assert [sorted(close.updates) for close in world.closed] == [sorted(devices)] * 2
    assert world.digest == flat_digest(devices)


def test_many_sites_of_many_devices_end_with_the_flat_model():
    """Twenty sites of fifty devices with `make trees`, in virtual time."""
    count, each = (20, 50) if TREES >= 200 else (4, 5)
    sites = [f"s{number}" for number in range(count)]
    devices = [f"{site}.d{number}" for site in sites for number in range(each)]
    world = SiteWorld(devices, sites, rules_for(devices))
    world.run_fairly(turns=10**7)
    assert [len(close.sums) for close in world.closed] == [count] * 2
    assert [len(close.updates) for close in world.closed] == [count * each] * 2
    assert world.digest == flat_digest(devices)
