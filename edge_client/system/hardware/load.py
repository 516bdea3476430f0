"""The load of the machine: its load average, and Linux's pressure stall information (PSI)."""

import math
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, text


@dataclass(frozen=True)
class Pressure:
    """Share of the last ten seconds, 0 to 1, in which `some` tasks, or all, waited."""

    some: float
    full: float


def read_load(root: Path = ROOT) -> float | None:
    """Tasks that run or wait to run, averaged over the last minute."""
    words = text(root / "proc/loadavg").split()
    return _number(words[0]) if words else None


def pressure(resource: str = "memory", root: Path = ROOT) -> Pressure | None:
    """The machine's pressure on `memory`, `cpu` or `io`; None if the kernel does not report it.

    Linux, Documentation/accounting/psi: lines like `some avg10=0.12 avg60=0.05 avg300=0.01 total=123`.
    """
    shares = {}
    for line in text(root / "proc/pressure" / resource).splitlines():
        kind, *values = line.split() or [""]
        for value in values:
            if value.startswith("avg10="):
                shares[kind] = _number(value.removeprefix("avg10="))
    some = shares.get("some")
    return None if some is None else Pressure(some / 100, (shares.get("full") or 0.0) / 100)


def _number(word: str) -> float | None:
    """The number in the text, if it is 0 or more."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None
