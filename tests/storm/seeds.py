"""The scenario and the faults that a seed stands for, with sites and aggregators.

They are drawn apart from all else: without them a seed means the same federation and the same faults.
"""

import random
from dataclasses import replace

from tests.storm import faults
from tests.storm.faults import SERVER, Fault, Scenario

SITES = (("s0",), ("s0", "s1"), ("s0", "s0.in"))
"""One site, two, and a site within a site."""
ONLY_OTHERS = ("failed-task", "suspend")
"""Faults that no gateway has: the link to its server is cut instead."""
OF_LINKS = ("loss", "repeats", "reordering", "partition", "cut")


def broker_of(site: str) -> str:
    """The target of faults of the broker of a site."""
    return f"{site}/broker"


def far_link(site: str) -> str:
    """The target of faults of the connection between a gateway and what is above it."""
    return f"{site}/far"


def scenario_of(seed: int) -> Scenario:
    """The scenario that a seed stands for."""
    scenario, draw = faults.scenario_of(seed), random.Random(f"sites {seed}")
    summed = not scenario.size and not scenario.masked
    sites = _placed(draw, scenario.devices) if summed and draw.random() < 1 / 3 else ()
    aggregators = draw.randint(1, 2) if not scenario.masked and draw.random() < 0.25 else 0
    packed = not scenario.masked and draw.random() < 0.25
    return replace(scenario, sites=sites, aggregators=aggregators, packed=packed)


def _placed(draw: random.Random, devices: int) -> tuple[str, ...]:
    """The site of each device, empty for one at the server's broker."""
    sites = draw.choice(SITES)
    placed = [draw.choice((*sites, *sites, "")) for _ in range(devices)]
    placed[draw.randrange(devices)] = sites[-1]
    return tuple(placed)


def faults_of(scenario: Scenario) -> tuple[Fault, ...]:
    """The faults that a scenario's seed stands for, in the order of time."""
    found = list(faults.faults_of(scenario))
    draw = random.Random(f"faults of sites {scenario.seed}")
    if scenario.gateways:
        found += [_of_site(draw, draw.choice(scenario.gateways)) for _ in range(draw.randint(0, 5))]
    if scenario.aggregators:
        found += [_deadly(draw) for _ in range(draw.randint(0, 3))]
    return tuple(sorted(found, key=lambda fault: fault.at))


def _of_site(draw: random.Random, site: str) -> Fault:
    """A fault of a gateway, its links, or its broker."""
    fault = faults.a_fault(draw, site, [site])
    if fault.kind == "broker-restart":
        return replace(fault, target=broker_of(site))
    if fault.kind in ONLY_OTHERS:
        return Fault("cut", fault.at, far_link(site))
    far = fault.kind in OF_LINKS and draw.random() < 0.7
    return replace(fault, target=far_link(site)) if far else fault


def _deadly(draw: random.Random) -> Fault:
    """An aggregator process dies after some operations of the next call."""
    at = round(draw.uniform(0, 12), 3)
    return Fault("aggregator-death", at, SERVER, size=float(draw.randint(0, 12)))
