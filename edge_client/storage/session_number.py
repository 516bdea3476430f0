"""The number of a connection, kept so that the next one is greater."""

from __future__ import annotations

import logging
from pathlib import Path

from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)


def note_session(path: Path, number: int) -> None:
    """Put down the number of this connection; the clock alone gives the next one where that fails."""
    try:
        write_synced(path, str(number).encode())
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
