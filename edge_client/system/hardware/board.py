"""All readings of a board at one moment."""

from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.memory import Memory, Storage, memory, storage
from edge_client.system.hardware.network import Connection, connection
from edge_client.system.hardware.power import Power, Zone, power, zones
from edge_client.system.hardware.processor import Pressure, Processor, pressure, processor, read_load
from edge_client.system.hardware.sysfs import ROOT, entries, number, text


@dataclass(frozen=True)
class Board:
    """All readings; None, or empty, if a source could not be read."""

    processor: Processor
    accelerator: str | None
    memory: Memory
    storage: Storage | None
    zones: tuple[Zone, ...]
    throttling: tuple[str, ...] | None
    power: Power
    connection: Connection | None
    load: float | None
    memory_pressure: Pressure | None


def look(state: Path, root: Path = ROOT) -> Board:
    """Read all sources once; `state` is the folder whose disk is measured."""
    return Board(
        processor=processor(root),
        accelerator=accelerator(root),
        memory=memory(root),
        storage=storage(state),
        zones=zones(root),
        throttling=throttle_flags(root),
        power=power(root),
        connection=connection(root),
        load=read_load(root),
        memory_pressure=pressure("memory", root),
    )


NVIDIA = ("dev/nvidia0", "dev/nvhost-gpu", "dev/nvgpu")  # a card, a Jetson, one with a newer kernel


def accelerator(root: Path = ROOT) -> str | None:
    return "cuda" if any((root / path).exists() for path in NVIDIA) else None


GET_THROTTLED = "sys/devices/platform/soc/soc:firmware/get_throttled"
# Raspberry Pi documentation, `vcgencmd get_throttled`.
FLAGS = {
    0: "under-voltage",
    1: "frequency-capped",
    2: "throttled",
    3: "soft-temperature-limit",
    16: "under-voltage-since-boot",
    17: "frequency-capped-since-boot",
    18: "throttled-since-boot",
    19: "soft-temperature-limit-since-boot",
}


OVER_CURRENT = "hwmon*/oc*_event_cnt"
"""A Jetson's counts of currents above its limits, which slow it down (the driver `tegra23x-oc-event`)."""


def throttle_flags(root: Path = ROOT) -> tuple[str, ...] | None:
    """The set flags; None without such firmware. A Pi's kernel writes them in hexadecimal."""
    counts = [number(path) for path in entries(root / "sys/class/hwmon", OVER_CURRENT)]
    if counts:
        return ("over-current-since-boot",) if any(counts) else ()
    digits = text(root / GET_THROTTLED).removeprefix("0x")
    if not 0 < len(digits) <= 8 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
        return None
    bits = int(digits, 16)
    return tuple(flag for bit, flag in FLAGS.items() if bits >> bit & 1)
