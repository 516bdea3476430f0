"""Where the power comes from, and how full the battery is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge_client.system.hardware.sysfs import ROOT, entries, number, text

Source = Literal["mains", "battery"]
OUTSIDE = ("Mains", "USB", "Wireless")
"""The types of supply that are no battery. Linux, Documentation/ABI/testing/sysfs-class-power."""


@dataclass(frozen=True)
class Power:
    """`source` is None where the board does not tell, as most without a battery do.

    `battery` is what is left, 0 to 1: of the emptiest battery where there are several.
    """

    source: Source | None
    battery: float | None


def power(root: Path = ROOT) -> Power:
    """The board's supplies; batteries of mice and keyboards are not the board's."""
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
    """Whether a supply that is no battery gives power; None if it is a battery or does not tell."""
    online = number(folder / "online")
    outside = text(folder / "type").startswith(OUTSIDE)
    return online > 0 if outside and online in (0, 1, 2) else None


def _level(folder: Path) -> float | None:
    """In hundredths, or else as what is left of what it holds when full."""
    percent = number(folder / "capacity")
    if percent is not None:
        return percent / 100 if 0 <= percent <= 100 else None
    for what in ("energy", "charge"):
        now, full = number(folder / f"{what}_now"), number(folder / f"{what}_full")
        if now is not None and full and 0 <= now <= full:
            return now / full
    return None
