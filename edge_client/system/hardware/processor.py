"""The processor: its name, its cores, its architecture."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from edge_client.system.hardware.sysfs import MAX_NAME, ROOT, name, text


@dataclass(frozen=True)
class Processor:
    """`cores` are those that this process may use; `board` is an Arm board's name, `model` the chip's."""

    model: str
    board: str | None
    cores: int
    architecture: str


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor(root: Path = ROOT) -> Processor:
    keys = _keys(root)
    return Processor(
        model=(keys.get("model name") or keys.get("Hardware") or platform.processor())[:MAX_NAME],
        board=name(root / "proc/device-tree/model") or keys.get("Model"),
        cores=usable_cores(),
        architecture=platform.machine(),
    )


def _keys(root: Path) -> dict[str, str]:
    """The last value of each key of `/proc/cpuinfo`."""
    pairs = (line.partition(":") for line in text(root / "proc/cpuinfo").splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon and value.isprintable()}
