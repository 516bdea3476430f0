"""The session's snapshot on disk: replaced atomically after each change, read when the process starts."""

import contextlib
import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)


class SnapshotFile:
    """The snapshot file; the device goes on without one if it cannot be written or read.

    Writes are synced to disk if a power cut would lose a result, or the rounds in which masks were used.
    Losing any other change only costs a repeated offer or a repeated result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: SessionSnapshot | None = None

    def load(self, federation: str, device: str) -> SessionSnapshot:
        """The last snapshot; an empty one if the file is damaged, or of another device or version."""
        empty = SessionSnapshot(federation=federation, device=device)
        try:
            memory = SessionSnapshot.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return empty
        except (OSError, ValidationError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return empty
        if (memory.federation, memory.device) != (federation, device):
            log.warning("%s is ignored: it belongs to %s in %s", self._path, memory.device, memory.federation)
            return empty
        return memory

    def save(self, memory: SessionSnapshot) -> bool:
        """Replace the snapshot; returns whether it has changed."""
        if memory == self._last:
            return False
        masked = self._last.masked if self._last is not None else {}
        durable = memory.result is not None or memory.masked != masked
        self._last = memory
        try:
            write_synced(self._path, memory.model_dump_json().encode(), durable=durable)
        except OSError as error:
            # Better no snapshot than an old one, which would bring back a task that is over.
            log.warning("%s cannot be written, a restart will begin the task anew: %s", self._path, error)
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True
