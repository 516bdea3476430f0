"""Shrinking a failing seed: fewer faults, then fewer devices and rounds; and printing it as a test."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from tests.storm.faults import Fault, Scenario

Case = tuple[Scenario, tuple[Fault, ...]]
Fails = Callable[[Scenario, Sequence[Fault]], bool]


def shrink(scenario: Scenario, faults: Sequence[Fault], fails: Fails) -> Case:
    """The smallest case found that still `fails`, which the given one does."""
    case = scenario, tuple(faults)
    while True:
        smaller = next((each for each in _smaller(*case) if fails(*each)), None)
        if smaller is None:
            return case
        case = smaller


def _smaller(scenario: Scenario, faults: tuple[Fault, ...]) -> list[Case]:
    """Cases that are simpler in one way, the largest steps first."""
    half = len(faults) // 2
    fewer = [faults[:half], faults[half:]] if half else []
    fewer += [faults[:number] + faults[number + 1 :] for number in range(len(faults))]
    cases: list[Case] = [(scenario, kept) for kept in fewer]
    plainer = (
        *({"deliver": False}, {"broadcast": False}, {"small_chunks": False}, {"spare": 0}, {"size": 0}),
        *({"momentum": False}, {"changes": False}, {"standby": False}, {"aggregators": 0}, {"packed": False}),
    )
    if scenario.rounds > 1:
        cases.append((replace(scenario, rounds=scenario.rounds - 1), faults))
    last = scenario.names[-1]
    if scenario.devices > max(1, scenario.size) and not any(fault.target == last for fault in faults):
        cases.append((replace(scenario, devices=scenario.devices - 1, spare=0), faults))
    for change in plainer:
        simple = replace(scenario, **change)
        if simple != scenario:
            cases.append((simple, faults))
    return cases + [(scenario, rounder) for rounder in _rounder(faults)]


def _rounder(faults: tuple[Fault, ...]) -> list[tuple[Fault, ...]]:
    """The faults with one number that is shorter to read."""
    found = []
    for number, fault in enumerate(faults):
        for name in ("at", "lasts", "size"):
            value = getattr(fault, name)
            if round(value, 1) != value:
                simple = replace(fault, **{name: round(value, 1)})
                found.append((*faults[:number], simple, *faults[number + 1 :]))
    return found


def as_row(scenario: Scenario, faults: Sequence[Fault], violation: str) -> str:
    """A row that can be pasted into `test_found.py`."""
    lines = "".join(f"        {_call(value)},\n" for value in (scenario, *faults))
    return f"    # {' '.join(violation.split())[:200]}\n    found(\n{lines}    ),\n"


def _call(value: Fault | Scenario) -> str:
    """How to make this value, without what it has by default."""
    given = [
        f"{field.name}={getattr(value, field.name)!r}"
        for field in fields(value)
        if getattr(value, field.name) != field.default
    ]
    return f"{type(value).__name__}({', '.join(given)})"
