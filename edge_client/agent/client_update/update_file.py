"""The file of the update, which processes of both versions read and write."""

import json
import logging
from pathlib import Path
from typing import Any

from edge_client.agent.client_update.state import Update
from edge_client.storage.atomic_files import write_synced
from schemas.messages import ClientOffer

log = logging.getLogger(__name__)


class UpdateFile:
    """Reads and writes the update; raises `OSError` if it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Update | None = None

    def load(self, federation: str, device: str) -> Update | None:
        """The last update, if it belongs to this device."""
        try:
            update = _update_in(json.loads(self._path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return None
        if (update.offer.federation, update.offer.device) != (federation, device):
            log.warning("%s is ignored: it belongs to %s", self._path, update.offer.device)
            return None
        return update

    def save(self, update: Update | None) -> None:
        """Write the update, if it has changed."""
        if update is None or update == self._last:
            return
        write_synced(self._path, update.model_dump_json().encode())
        self._last = update


def _update_in(stored: dict[str, Any]) -> Update:
    """The update in a file that another version may have written: fields that this one lacks are left out."""
    offer = {name: value for name, value in stored["offer"].items() if name in ClientOffer.model_fields}
    return Update.model_validate_json(json.dumps({**stored, "offer": offer}))
