"""What every line of this process's log is about: its federation, its run, the round that is under way.

One for the process, and no context variables: those do not reach the threads of paho and of the coordinator.
What a single line is about, such as a device, it says itself: `log.warning(..., extra={"device": name})`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

FACTS = ("federation", "run", "round", "device", "reason")
"""What a line may say beside its words, in this order."""

_about: Mapping[str, Any] = MappingProxyType({})


def about(**facts: Any) -> None:
    """From now on lines say these too; None takes one away. Any thread may call this, and often."""
    global _about
    if any(_about.get(name) != value for name, value in facts.items()):
        _about = MappingProxyType({**_about, **facts})


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the line is about: what it says itself, else what holds for all."""
    said = {name: getattr(record, name, None) for name in FACTS}
    found = {name: _about.get(name) if value is None else value for name, value in said.items()}
    return {name: value for name, value in found.items() if value is not None}
