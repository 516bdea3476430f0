"""The measured speeds of a board, one per trainer, stored for later starts.

`edge-client profile` measures and stores it in the state folder. `edge-client run` reads it, and notes what a
process with torch takes where this is not measured yet.
"""

import logging
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware.processor import Processor, processor
from edge_client.system.hardware.sysfs import ROOT, text
from edge_client.system.libraries import release
from schemas.base import Frozen
from schemas.values import MeasuredSpeed, Text, TrainerName

log = logging.getLogger(__name__)


class KeptSpeeds(Frozen):
    """Measurements, the best trainer's first, and their conditions.

    Another processor, or another version of a trainer's library, needs new ones.
    """

    of: Text
    speeds: tuple[MeasuredSpeed, ...]


def keep(path: Path, speeds: Iterable[MeasuredSpeed], processor: Processor) -> None:
    write_synced(
        path, KeptSpeeds(of=_name_processor(processor), speeds=tuple(speeds)).model_dump_json().encode()
    )


def recall(path: Path, processor: Processor) -> tuple[MeasuredSpeed, ...]:
    """The stored measurements, if they are of this processor and these libraries."""
    try:
        kept = KeptSpeeds.model_validate_json(text(path))
    except ValidationError:
        return ()
    return kept.speeds if kept.of == _name_processor(processor) else ()


def note_process(state: Path, trainer: TrainerName, resident: int, root: Path = ROOT) -> None:
    """Store the bytes of a process with a trainer that is not measured yet, if the folder can be written."""
    path, chip = kept_at(state), processor(root)
    speeds = recall(path, chip)
    if any(speed.trainer == trainer for speed in speeds):
        return
    noted = MeasuredSpeed(trainer=trainer, resident_bytes=resident)
    try:
        keep(path, (noted, *speeds), chip)
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)


def kept_at(state: Path) -> Path:
    """The file of the measurements in a state folder."""
    return state / "speed.json"


def _name_processor(processor: Processor) -> str:
    libraries = [release(name) or "none" for name in ("torch", "onnxruntime")]
    chip = (processor.board or "", processor.model, processor.cores, processor.architecture)
    return " ".join(map(str, (*chip, *libraries)))[:500]
