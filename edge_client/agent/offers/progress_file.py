"""The file in which a device keeps how far an offered model, or release of the client, has come."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from edge_client.agent.offers.progress import Progress
from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)

Kept = TypeVar("Kept", bound=Progress)


class ProgressFile(Generic[Kept]):
    """Reads and writes the progress of an offer; raises `OSError` if it cannot be written.

    `parse` reads the file's bytes, and raises `ValueError`, `TypeError` or `KeyError` for others.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Kept]) -> None:
        self._path, self._parse = path, parse
        self._last: Kept | None = None

    def load(self, federation: str, device: str) -> Kept | None:
        """The last progress, if it belongs to this device."""
        try:
            kept = self._parse(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return None
        if (kept.offer.federation, kept.offer.device) != (federation, device):
            log.warning("%s is ignored: it belongs to %s", self._path, kept.offer.device)
            return None
        return kept

    def save(self, kept: Kept | None) -> None:
        """Write the progress, if it has changed."""
        if kept is None or kept == self._last:
            return
        write_synced(self._path, kept.model_dump_json().encode())
        self._last = kept
