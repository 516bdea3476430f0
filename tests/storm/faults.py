"""What can go wrong, as data: a scenario of a federation, and the faults that a seed injects into it."""

import random
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "loss",
    "repeats",
    "reordering",
    "partition",
    "cut",
    "broker-restart",
    "crash",
    "power-cut",
    "closing-crash",
    "pause",
    "clock-jump",
    "full-disk",
    "failed-sync",
    "failed-task",
    "suspend",
    "aggregator-death",
]
SERVER, STANDBY, BROKER = "server", "standby", "broker"
RUN, NEXT_RUN = "run-1", "run-2"
CLOSING_CRASHES = 0.2
"""The share of the seeds with a crash at the end of a round."""
WORST_S = 40.0
"""Faults begin within this time, in virtual seconds."""


@dataclass(frozen=True)
class Fault:
    """A fault that begins `at` virtual seconds.

    `target` is `server`, a device, a site for its gateway (`seeds` names its link and its broker), or empty
    for all connections. `lasts` is in seconds: how long a condition holds, or how long a process or the
    broker stays down. `size` depends on the kind: a probability per message (loss, repeats), seconds
    (reordering, clock-jump), the number of further disk operations before a crash, or before an aggregator
    dies in its next call, or 1 for a broker that forgets its retained messages. A `closing-crash` counts them
    from the next round that the target closes.
    """

    kind: Kind
    at: float
    target: str = ""
    lasts: float = 0.0
    size: float = 0.0

    @property
    def over(self) -> float:
        """When the fault is over, in virtual seconds."""
        return self.at + self.lasts


@dataclass(frozen=True)
class Scenario:
    """The federation of one seed: its size and its rules; everything else is fixed.

    `size` is the number of updates of a buffered round, 0 for synchronous rounds; `small_chunks`: models and
    updates travel in several chunks; `spare` devices are asked beyond those needed; `broadcast`: the model is
    published once for all devices; `deliver`: models are delivered after the last round; `impatient`: a
    round's deadline is near, so that devices miss it; otherwise nothing may depend on it. With `momentum` the
    server's optimizer has a state of its own; with `changes` devices are sent what has changed in the model;
    `masked` updates are summed by secure aggregation. With a `standby` the server holds a lease. `sites` are
    those of the devices, in order, empty for a device at the server's broker. The server has so many
    `aggregators`; `packed` updates are compressed.
    """

    seed: int
    devices: int = 2
    rounds: int = 2
    size: int = 0
    spare: int = 0
    small_chunks: bool = True
    broadcast: bool = False
    deliver: bool = False
    impatient: bool = False
    momentum: bool = False
    changes: bool = False
    masked: bool = False
    standby: bool = False
    sites: tuple[str, ...] = ()
    aggregators: int = 0
    packed: bool = False

    @property
    def names(self) -> list[str]:
        """The devices' names, which begin with those of their sites."""
        sites = (*self.sites, *[""] * self.devices)[: self.devices]
        return [f"{site}.d{number}".lstrip(".") for number, site in enumerate(sites)]

    @property
    def gateways(self) -> tuple[str, ...]:
        """The sites, also those around others, in which no device is."""
        parts = [site.split(".") for site in self.sites if site]
        around = {".".join(names[:depth]) for names in parts for depth in range(1, len(names) + 1)}
        return tuple(sorted(around))


def scenario_of(seed: int) -> Scenario:
    """The scenario that a seed stands for, without sites and aggregators (`seeds` adds them)."""
    draw = random.Random(f"scenario {seed}")
    devices = draw.choice((1, 2, 2, 3, 3))
    buffered = devices > 1 and draw.random() < 0.25
    masked = devices == 3 and not buffered and draw.random() < 0.2
    return Scenario(
        seed,
        devices=devices + masked,
        rounds=draw.choice((1, 2, 2, 3)),
        size=draw.randint(1, devices) if buffered else 0,
        spare=1 if devices == 3 and not buffered and not masked and draw.random() < 0.3 else 0,
        small_chunks=draw.random() < 0.75,
        broadcast=draw.random() < 0.4,
        deliver=draw.random() < 0.3,
        # A masked round whose helpers have lost their keys waits until its deadline.
        impatient=draw.random() < 0.3 or masked,
        momentum=not buffered and draw.random() < 0.3,
        changes=draw.random() < 0.3,
        masked=masked,
        standby=not masked and draw.random() < 0.2,
    )


def faults_of(scenario: Scenario) -> tuple[Fault, ...]:
    """The faults that a scenario's seed stands for, in the order of time, but for those of sites."""
    draw = random.Random(f"faults {scenario.seed}")
    devices = scenario.names
    servers = (SERVER, SERVER, STANDBY) if scenario.standby else (SERVER,)
    faults = [a_fault(draw, draw.choice(servers), devices) for _ in range(draw.randint(1, 8))]
    faults += _closing_crash(random.Random(f"closing {scenario.seed}"), servers)
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _closing_crash(draw: random.Random, servers: tuple[str, ...]) -> list[Fault]:
    """A crash between the end of a round and the next planning, which no time hits often."""
    if draw.random() >= CLOSING_CRASHES:
        return []
    lasts = round(draw.choice((0.2, draw.uniform(0, 20))), 2)
    at, after = round(draw.uniform(0, 8), 3), float(draw.randint(0, 12))
    return [Fault("closing-crash", at, draw.choice(servers), lasts, after)]


def a_fault(draw: random.Random, server: str, devices: list[str]) -> Fault:
    """A fault of the server, of one of the devices, or of the network."""
    kind: Kind = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    # Most of a run without faults happens in its first seconds.
    at = round(draw.choice((draw.uniform(0, 8), draw.uniform(0, WORST_S))), 3)
    anyone = draw.choice((server, draw.choice(devices)))
    match kind:
        case "loss" | "repeats":
            target = draw.choice(("", anyone))
            return Fault(kind, at, target, round(draw.uniform(1, 15), 2), round(draw.uniform(0.1, 0.9), 2))
        case "reordering":
            return Fault(kind, at, "", round(draw.uniform(1, 15), 2), round(10 ** draw.uniform(-1, 1.3), 2))
        case "partition" | "pause":
            return Fault(kind, at, anyone, round(draw.choice((draw.uniform(0.1, 5), draw.uniform(5, 40))), 2))
        case "cut":
            return Fault(kind, at, anyone)
        case "broker-restart":
            return Fault(kind, at, BROKER, round(draw.uniform(0.1, 10), 2), float(draw.randint(0, 1)))
        case "crash" | "power-cut":
            after = draw.choice((0, draw.randint(1, 60)))
            return Fault(kind, at, anyone, round(draw.choice((0.2, draw.uniform(0, 20))), 2), float(after))
        case "clock-jump":
            return Fault(kind, at, anyone, 0.0, round(draw.choice((-1, 1)) * 10 ** draw.uniform(0, 5), 1))
        case "full-disk":
            return Fault(kind, at, anyone, round(draw.uniform(0.5, 15), 2))
        case "failed-sync":
            return Fault(kind, at, anyone, 0.0, float(draw.randint(1, 6)))
        case "failed-task":
            return Fault(kind, at, draw.choice(devices))
        case "suspend":
            return Fault(kind, at, SERVER, round(draw.uniform(0.2, 5), 2))


WEIGHTS: dict[Kind, int] = {
    "loss": 12,
    "repeats": 8,
    "reordering": 8,
    "partition": 8,
    "cut": 8,
    "broker-restart": 6,
    "crash": 16,
    "power-cut": 14,
    "pause": 8,
    "clock-jump": 5,
    "full-disk": 5,
    "failed-sync": 3,
    "failed-task": 3,
    "suspend": 2,
}
