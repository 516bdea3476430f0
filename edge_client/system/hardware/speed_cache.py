"""The measured speeds of a board, one per trainer, stored for later starts.

`edge-client profile` measures and stores it in the state folder; `edge-client run` only reads it.
"""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware.processor import Processor
from edge_client.system.hardware.sysfs import text
from edge_client.system.hardware.versions import release
from schemas.base import Frozen
from schemas.values import MeasuredSpeed, Text


class KeptSpeeds(Frozen):
    """Measurements, the best trainer's first, and their conditions.

    Another processor, or another version of a trainer's library, needs new ones.
    """

    of: Text
    speeds: tuple[MeasuredSpeed, ...]


def keep(path: Path, speeds: Iterable[MeasuredSpeed], processor: Processor) -> None:
    """Store measurements."""
    write_synced(path, KeptSpeeds(of=_named(processor), speeds=tuple(speeds)).model_dump_json().encode())


def recall(path: Path, processor: Processor) -> tuple[MeasuredSpeed, ...]:
    """The stored measurements, if they are of this processor and these libraries."""
    try:
        kept = KeptSpeeds.model_validate_json(text(path))
    except ValidationError:
        return ()
    return kept.speeds if kept.of == _named(processor) else ()


def kept_at(state: Path) -> Path:
    """The file of the measurements in a state folder."""
    return state / "speed.json"


def _named(processor: Processor) -> str:
    libraries = " ".join(release(name) or "none" for name in ("torch", "onnxruntime"))
    named = (
        f"{processor.board or ''} {processor.model} {processor.cores} {processor.architecture} {libraries}"
    )
    return named[:500]
