"""The trial on disk: `trial.json`, replaced atomically before the trial is acted on."""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import ValidationError

from edge_client.agent.rollout.state import Trial
from edge_client.storage.atomic_files import write_synced

log = logging.getLogger(__name__)


class TrialFile:
    """Reads and writes the trial; raises `OSError` if it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Trial | None = None

    def load(self, federation: str, device: str) -> Trial | None:
        """The last trial, if it belongs to this device."""
        try:
            trial = Trial.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return None
        if (trial.offer.federation, trial.offer.device) != (federation, device):
            log.warning("%s is ignored: it belongs to %s", self._path, trial.offer.device)
            return None
        return trial

    def save(self, trial: Trial | None) -> None:
        if trial is None or trial == self._last:
            return
        write_synced(self._path, trial.model_dump_json().encode())
        self._last = trial
