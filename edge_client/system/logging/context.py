"""The context of every log line of this process: its federation, run and current round.

It is global, because context variables do not reach the threads of paho and of the coordinator. A single line
adds its own facts, such as a device: `log.warning(..., extra={"device": name})`.
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

FACTS = ("federation", "run", "round", "device", "reason")  # of a line, in this order
_about: Mapping[str, Any] = MappingProxyType({})


def about(**facts: Any) -> None:
    """Add facts to all later lines; None removes one. Any thread may call this, also often."""
    global _about
    if any(_about.get(name) != value for name, value in facts.items()):
        _about = MappingProxyType({**_about, **facts})


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The facts of a line: its own, else those of the process."""
    said = {name: getattr(record, name, None) for name in FACTS}
    found = {name: _about.get(name) if value is None else value for name, value in said.items()}
    return {name: value for name, value in found.items() if value is not None}
