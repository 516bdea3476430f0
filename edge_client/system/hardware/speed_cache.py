"""What was measured of a board's speed, kept for later starts.

`edge-client profile` measures; what it finds lies in the state folder, and `edge-client run` reads it there:
it never measures by itself.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_client.system.hardware.processor import Processor
from edge_client.system.hardware.sysfs import text
from edge_client.system.hardware.versions import release
from schemas.base import Frozen
from schemas.values import MeasuredSpeed, Text


class KeptSpeed(Frozen):
    """A measurement, and what it holds for: another processor or another torch is to be measured anew."""

    of: Text
    speed: MeasuredSpeed


def keep(path: Path, speed: MeasuredSpeed, processor: Processor) -> None:
    """Put a measurement down for later starts."""
    write_synced(path, KeptSpeed(of=_named(processor), speed=speed).model_dump_json().encode())


def recall(path: Path, processor: Processor) -> MeasuredSpeed | None:
    """The measurement that is kept, if there is one and it is of this processor and this torch."""
    try:
        kept = KeptSpeed.model_validate_json(text(path))
    except ValidationError:
        return None
    return kept.speed if kept.of == _named(processor) else None


def kept_at(state: Path) -> Path:
    """Where the measurement lies in a state folder."""
    return state / "speed.json"


def _named(processor: Processor) -> str:
    torch = release("torch") or "none"
    named = f"{processor.board or ''} {processor.model} {processor.cores} {processor.architecture} {torch}"
    return named[:500]
