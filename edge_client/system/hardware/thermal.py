"""Temperatures: Linux's thermal zones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import ROOT, entries, name, number

COLDEST, HOTTEST = -60.0, 200.0  # limits of plausible temperatures; disabled sensors report others


@dataclass(frozen=True)
class Zone:
    """A sensor on the board and its temperature."""

    name: str
    celsius: float


def zones(root: Path = ROOT) -> tuple[Zone, ...]:
    found = []
    for folder in entries(root / "sys/class/thermal", "thermal_zone*"):
        millidegrees = number(folder / "temp")
        if millidegrees is not None and COLDEST <= millidegrees / 1000 <= HOTTEST:
            found.append(Zone(name(folder / "type") or folder.name, millidegrees / 1000))
    return tuple(found)


def hottest(measured: Sequence[Zone]) -> float | None:
    return max((zone.celsius for zone in measured), default=None)
