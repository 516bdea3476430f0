"""The number of a connection, stored so that the next one is greater."""

import logging
from pathlib import Path

from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)


def note_session(path: Path, number: int) -> None:
    """Store the number of this connection; if that fails, the clock provides the next one."""
    try:
        write_synced(path, str(number).encode())
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error)
