"""Follows the labels that the operator sets in the inventory of a service folder while a run goes on."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edge_server.rounds.membership import OwnLabels
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder, default_service_folder
from schemas.errors import EdgeError

log = logging.getLogger(__name__)


class LabelWatch:
    """The labels of one federation's devices; there need be no inventory, or not yet."""

    def __init__(self, path: Path, federation: str) -> None:
        self._path, self._federation = path, federation
        self._inventory: Inventory | None = None
        self._version: int | None = None
        self._known: OwnLabels = {}
        self._failed = ""

    def poll(self) -> OwnLabels | None:
        """All labels if they have changed since the last call, else None; called a few times a second."""
        try:
            return self._read_changes()
        except (EdgeError, OSError, sqlite3.Error) as error:
            if str(error) != self._failed:
                log.warning("labels stay as they are: %s", error)
            self._failed = str(error)
            return None

    def close(self) -> None:
        if self._inventory is not None:
            self._inventory.close()

    def _read_changes(self) -> OwnLabels | None:
        if self._inventory is None:
            if not self._path.exists():
                return None
            self._inventory = Inventory(self._path)
        version = self._inventory.changed_elsewhere()
        if version == self._version:
            return None
        labels = self._inventory.labels(self._federation)
        self._version = version
        if labels == self._known:
            return None
        self._known = labels
        return labels


@contextmanager
def watched_labels(folder: Path | None, federation: str) -> Iterator[LabelWatch]:
    """The labels in the inventory of this service folder, or of the default one."""
    watch = LabelWatch(ServiceFolder(folder or default_service_folder()).inventory, federation)
    try:
        yield watch
    finally:
        watch.close()
