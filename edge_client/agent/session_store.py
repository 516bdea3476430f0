"""A device's memory on disk: written after each change, all at once, and read when the process begins."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)


class SnapshotFile:
    """A device's memory on disk; where it cannot be written or read there is none, and the device goes on.

    The disk is waited for where a power cut would cost a training, or what was promised of masks. Of all else
    it costs what a kill at the same moment would: a task is offered anew, or a result is told once more.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: SessionSnapshot | None = None

    def load(self, federation: str, device: str) -> SessionSnapshot:
        """What was remembered last; nothing of a file that is damaged or another device's or version's."""
        nothing = SessionSnapshot(federation=federation, device=device)
        try:
            memory = SessionSnapshot.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return nothing
        except (OSError, ValidationError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return nothing
        if (memory.federation, memory.device) != (federation, device):
            log.warning("%s is ignored: it is of %s in %s", self._path, memory.device, memory.federation)
            return nothing
        return memory

    def save(self, memory: SessionSnapshot) -> bool:
        """Remember this instead; returns whether it is anything new."""
        if memory == self._last:
            return False
        masked = self._last.masked if self._last is not None else {}
        durable = memory.result is not None or memory.masked != masked
        self._last = memory
        try:
            write_synced(self._path, memory.model_dump_json().encode(), durable=durable)
        except OSError as error:
            # An older memory would bring back a task that is over; none at all is never wrong.
            log.warning("%s cannot be written, a restart will begin the task anew: %s", self._path, error)
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True
