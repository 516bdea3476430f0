"""Writes the health of the served model (see `health`), which a rollout watches.

A start is written before the model is loaded, so that a model which crashes the process is counted.
"""

import threading
from dataclasses import dataclass
from pathlib import Path

from edge_client.inference.model_slots import Slots
from edge_client.inference.service.health import Health, read_health, write_health


@dataclass
class _Note:
    """The health of the model in one slot; `new` if it is not written yet."""

    folder: Path
    health: Health
    new: bool = True

    def add(self, **counts: float) -> None:
        self.health, self.new = self.health.add(**counts), True

    def save(self) -> None:
        if self.new:
            self.new = False
            write_health(self.folder, self.health)


class HealthWriter:
    """Counts starts, ends and requests of the models in one device's slots; thread-safe."""

    def __init__(self, slots: Slots) -> None:
        self._slots, self._lock = slots, threading.Lock()
        self._serving: _Note | None = None
        self._loading: _Note | None = None

    def loading(self) -> None:
        """Count a start of the model in use, which is about to be loaded."""
        now = self._slots.current()
        if now is None or (self._serving is not None and self._serving.health.digest == now.model.digest):
            return
        health = read_health(now.folder, now.model.digest)
        self._loading = _Note(now.folder, health.add(starts=1))
        self._loading.save()

    def loaded(self) -> None:
        """Count requests for the loaded model from now on."""
        if self._loading is None:
            return
        with self._lock:
            self._end()
            self._serving, self._loading = self._loading, None

    def load_failed(self) -> None:
        """Count a refusal; the previous model stays in service."""
        if self._loading is not None:
            self._loading.add(refusals=1, ends=1)
            self._loading.save()
            self._loading = None

    def answered(self, seconds: float) -> None:
        """Count an answered request."""
        self._count(requests=1, busy_ms=seconds * 1e3)

    def failed(self) -> None:
        """Count a valid request without an answer."""
        self._count(requests=1, errors=1)

    def save(self) -> None:
        """Write new counts; call about once a second."""
        with self._lock:
            if self._serving is not None:
                self._serving.save()

    def close(self) -> None:
        """Count the regular end of the process."""
        with self._lock:
            self._end()
            self._serving = None

    def _count(self, **counts: float) -> None:
        with self._lock:
            if self._serving is not None:
                self._serving.add(**counts)

    def _end(self) -> None:
        if self._serving is not None:
            self._serving.add(ends=1)
            self._serving.save()
