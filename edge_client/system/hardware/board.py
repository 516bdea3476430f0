"""All readings of a board at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.load import Pressure, load, pressure
from edge_client.system.hardware.memory import Memory, memory
from edge_client.system.hardware.network import Connection, connection
from edge_client.system.hardware.power import Power, power
from edge_client.system.hardware.processor import Processor, processor
from edge_client.system.hardware.storage import Storage, storage
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.hardware.thermal import Zone, zones
from edge_client.system.hardware.throttling import throttle_flags


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
        load=load(root),
        memory_pressure=pressure("memory", root),
    )


NVIDIA = ("dev/nvidia0", "dev/nvhost-gpu", "dev/nvgpu")
"""Device files of a card, a Jetson, and a Jetson with a newer kernel."""


def accelerator(root: Path = ROOT) -> str | None:
    """`cuda` if there is an NVIDIA device."""
    return "cuda" if any((root / path).exists() for path in NVIDIA) else None
