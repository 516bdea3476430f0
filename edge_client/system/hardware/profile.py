"""This machine: all its readings, and its description in the birth message with a speed for each trainer.

`edge-client profile` measures speeds and stores them in the state folder. `edge-client run` reads them, and
notes what a process with torch takes where this is not measured yet.
"""

import logging
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware.memory import Memory, Storage, memory, storage
from edge_client.system.hardware.network import Connection, connection
from edge_client.system.hardware.power import Power, Zone, hottest, power, zones
from edge_client.system.hardware.processor import Pressure, Processor, pressure, processor, read_load
from edge_client.system.hardware.sysfs import ROOT, entries, number, text
from edge_client.system.libraries import release, releases
from schemas.base import Frozen
from schemas.values import Accelerator, CapabilityProfile, MeasuredSpeed, Text


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


log = logging.getLogger(__name__)

SOFTWARE = ("edge-federation", "torch", "onnxruntime", "numpy")


class KeptSpeeds(Frozen):
    """Measurements, the best trainer's first, and their conditions.

    Another processor, or another version of a trainer's library, needs new ones.
    """

    of: Text
    speeds: tuple[MeasuredSpeed, ...]


def keep_speeds(path: Path, speeds: Iterable[MeasuredSpeed], processor: Processor) -> None:
    write_synced(
        path, KeptSpeeds(of=_name_processor(processor), speeds=tuple(speeds)).model_dump_json().encode()
    )


def recall_speeds(path: Path, processor: Processor) -> tuple[MeasuredSpeed, ...]:
    """The stored measurements, if they are of this processor and these libraries."""
    try:
        kept = KeptSpeeds.model_validate_json(text(path))
    except ValidationError:
        return ()
    return kept.speeds if kept.of == _name_processor(processor) else ()


def note_process(state: Path, noted: MeasuredSpeed) -> None:
    """Store the bytes of a process whose trainer is not measured yet, if the folder can be written."""
    path, chip = speeds_file(state), processor()
    speeds = recall_speeds(path, chip)
    if any((speed.trainer, speed.device) == (noted.trainer, noted.device) for speed in speeds):
        return
    try:
        keep_speeds(path, (noted, *speeds), chip)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


def speeds_file(state: Path) -> Path:
    """The file of the measurements in a state folder."""
    return state / "speed.json"


def _name_processor(processor: Processor) -> str:
    libraries = [release(name) or "none" for name in ("torch", "onnxruntime")]
    chip = (processor.board or "", processor.model, processor.cores, processor.architecture)
    return " ".join(map(str, (*chip, *libraries)))[:500]


def profile(state: Path, *, tier: int | None = None, root: Path = ROOT) -> CapabilityProfile:
    """Describe this machine; unknown values are omitted. `state` is the device's folder.

    Nothing is measured: the speeds are those that `edge-client profile` has stored in the folder.
    """
    return describe_board(look(state, root), tier=tier, measured=speeds_file(state))


def training_on(profile: CapabilityProfile, accelerator: Accelerator | None) -> CapabilityProfile:
    """The profile of a device whose torch trains there, with the speeds that were measured there."""
    where = {"torch": accelerator.kind if accelerator else "cpu", "onnx": "cpu"}
    speeds = tuple(speed for speed in profile.speeds if speed.device == where[speed.trainer])
    return profile.model_copy(
        update={
            "trains_on": accelerator,
            "speed": next(iter(speeds), None),
            "further_speeds": speeds[1:],
        }
    )


def describe_board(board: Board, *, tier: int | None, measured: Path) -> CapabilityProfile:
    chip = board.processor
    speeds = recall_speeds(measured, chip)
    return CapabilityProfile(
        machine=chip.board or f"{platform.system()} {platform.machine()}",
        processor=chip.model,
        architecture=chip.architecture,
        cores=chip.cores,
        memory_bytes=board.memory.usable or 0,
        memory_free_bytes=board.memory.free,
        disk_bytes=board.storage.total if board.storage else None,
        disk_free_bytes=board.storage.free if board.storage else None,
        accelerator=board.accelerator,
        speed=next(iter(speeds), None),
        further_speeds=speeds[1:],
        celsius=hottest(board.zones),
        throttling=board.throttling or (),
        power=board.power.source,
        battery=board.power.battery,
        link=board.connection.kind if board.connection else None,
        tier=tier,
        software={"python": platform.python_version(), **releases(SOFTWARE)},
    )
