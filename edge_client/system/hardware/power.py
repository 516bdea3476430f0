"""The source of power and the charge of the battery."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge_client.system.hardware.sysfs import ROOT, entries, name, number, text

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


Source = Literal["mains", "battery"]
# Types of supplies other than batteries. Linux, Documentation/ABI/testing/sysfs-class-power.
OUTSIDE = ("Mains", "USB", "Wireless")


@dataclass(frozen=True)
class Power:
    """`source` is None if the board does not report it, as most without a battery.

    `battery` is the charge, 0 to 1, of the emptiest battery.
    """

    source: Source | None
    battery: float | None


def power(root: Path = ROOT) -> Power:
    """The board's supplies, without the batteries of mice and keyboards."""
    supplies = entries(root / "sys/class/power_supply")
    own = [folder for folder in supplies if text(folder / "scope") != "Device"]
    batteries = [folder for folder in own if text(folder / "type") in ("Battery", "UPS")]
    outside = [online for folder in own if (online := _online(folder)) is not None]
    levels = [level for folder in batteries if (level := _level(folder)) is not None]
    return Power(_source(batteries, outside), min(levels, default=None))


def _source(batteries: Sequence[Path], outside: Sequence[bool]) -> Source | None:
    if any(outside):
        return "mains"
    states = {text(folder / "status") for folder in batteries}
    if "Discharging" in states:
        return "battery"
    if states & {"Charging", "Full", "Not charging"}:
        return "mains"
    return "battery" if batteries and outside else None


def _online(folder: Path) -> bool | None:
    """Whether a supply other than a battery delivers power; None for a battery or if unknown."""
    online = number(folder / "online")
    outside = text(folder / "type").startswith(OUTSIDE)
    return online > 0 if outside and online in (0, 1, 2) else None


def _level(folder: Path) -> float | None:
    """The charge in hundredths, or else the energy left relative to a full battery."""
    percent = number(folder / "capacity")
    if percent is not None:
        return percent / 100 if 0 <= percent <= 100 else None
    for what in ("energy", "charge"):
        now, full = number(folder / f"{what}_now"), number(folder / f"{what}_full")
        if now is not None and full and 0 <= now <= full:
            return now / full
    return None
