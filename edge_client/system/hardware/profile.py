"""The description of this machine in its birth message, with its measured speeds, one per trainer.

`edge-client profile` measures and stores these in the state folder. `edge-client run` reads them, and notes
what a process with torch takes where this is not measured yet.
"""

import logging
import platform
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware import power, sysfs
from edge_client.system.hardware.board import Board, look
from edge_client.system.hardware.processor import Processor, processor
from edge_client.system.libraries import release, releases
from schemas.base import Frozen
from schemas.values import Accelerator, CapabilityProfile, MeasuredSpeed, Text

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
        kept = KeptSpeeds.model_validate_json(sysfs.text(path))
    except ValidationError:
        return ()
    return kept.speeds if kept.of == _name_processor(processor) else ()


def note_process(state: Path, noted: MeasuredSpeed, root: Path = sysfs.ROOT) -> None:
    """Store the bytes of a process whose trainer is not measured yet, if the folder can be written."""
    path, chip = speeds_file(state), processor(root)
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


def profile(state: Path, *, tier: int | None = None, root: Path = sysfs.ROOT) -> CapabilityProfile:
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
        celsius=power.hottest(board.zones),
        throttling=board.throttling or (),
        power=board.power.source,
        battery=board.power.battery,
        link=board.connection.kind if board.connection else None,
        tier=tier,
        software={"python": platform.python_version(), **releases(SOFTWARE)},
    )
