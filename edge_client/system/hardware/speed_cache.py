"""The measured speed of a board, stored for later starts.

`edge-client profile` measures and stores it in the state folder; `edge-client run` only reads it.
"""

from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware.processor import Processor
from edge_client.system.hardware.sysfs import text
from edge_client.system.hardware.versions import release
from schemas.base import Frozen
from schemas.values import MeasuredSpeed, Text


class KeptSpeed(Frozen):
    """A measurement and its conditions: another processor or another torch needs a new one."""

    of: Text
    speed: MeasuredSpeed


def keep(path: Path, speed: MeasuredSpeed, processor: Processor) -> None:
    """Store a measurement."""
    write_synced(path, KeptSpeed(of=_named(processor), speed=speed).model_dump_json().encode())


def recall(path: Path, processor: Processor) -> MeasuredSpeed | None:
    """The stored measurement, if it is of this processor and this torch."""
    try:
        kept = KeptSpeed.model_validate_json(text(path))
    except ValidationError:
        return None
    return kept.speed if kept.of == _named(processor) else None


def kept_at(state: Path) -> Path:
    """The file of the measurement in a state folder."""
    return state / "speed.json"


def _named(processor: Processor) -> str:
    torch = release("torch") or "none"
    named = f"{processor.board or ''} {processor.model} {processor.cores} {processor.architecture} {torch}"
    return named[:500]
