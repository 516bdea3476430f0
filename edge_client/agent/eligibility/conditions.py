"""The readings that the rules apply to; None if the board does not provide one."""

import time
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.load import load, pressure
from edge_client.system.hardware.network import Kind, connection
from edge_client.system.hardware.power import Source, power
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.hardware.thermal import hottest, zones


@dataclass(frozen=True)
class Conditions:
    """The board at one moment: degrees Celsius, percent, load per core, minutes of the local day."""

    celsius: float | None = None
    battery: float | None = None
    source: Source | None = None
    load: float | None = None
    memory_pressure: float | None = None
    link: Kind | None = None
    minute: int = 0


def conditions(*, cores: int, root: Path = ROOT) -> Conditions:
    supply, busy, squeeze, link = power(root), load(root), pressure("memory", root), connection(root)
    clock = time.localtime()
    return Conditions(
        celsius=hottest(zones(root)),
        battery=None if supply.battery is None else 100 * supply.battery,
        source=supply.source,
        load=None if busy is None else busy / max(1, cores),
        memory_pressure=None if squeeze is None else 100 * squeeze.some,
        link=None if link is None else link.kind,
        minute=60 * clock.tm_hour + clock.tm_min,
    )
