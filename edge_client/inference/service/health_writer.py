"""What whoever serves from a slot notes of it, for the watch after a rollout: see `health`.

A start is on disk before the model is loaded: one that takes the process down has begun and not ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edge_client.inference.model_slots import Slots
from edge_client.inference.service.health import Health, read_health, write_health


@dataclass
class _Note:
    """The health of the model in one slot, and whether it is to be written."""

    folder: Path
    health: Health
    new: bool = True

    def change(self, to: Health) -> None:
        self.health, self.new = to, True

    def save(self) -> None:
        if self.new:
            self.new = False
            write_health(self.folder, self.health)


class ServiceNotes:
    """Notes on the models of one device's slots; any thread may say how a request went."""

    def __init__(self, slots: Slots) -> None:
        self._slots, self._lock = slots, threading.Lock()
        self._serves: _Note | None = None
        self._tried: _Note | None = None

    def tries(self) -> None:
        """The model in use is about to be loaded."""
        now = self._slots.current()
        if now is None or (self._serves is not None and self._serves.health.digest == now.model.digest):
            return
        health = read_health(now.folder, now.model.digest)
        self._tried = _Note(now.folder, health.started())
        self._tried.save()

    def serves(self) -> None:
        """It was loaded, and answers from now on."""
        if self._tried is None:
            return
        with self._lock:
            self._end()
            self._serves, self._tried = self._tried, None

    def refuses(self) -> None:
        """It cannot be served; the one before goes on."""
        if self._tried is not None:
            self._tried.change(self._tried.health.refused().ended())
            self._tried.save()
            self._tried = None

    def answered(self, seconds: float) -> None:
        """A request was answered."""
        self._count(lambda health: health.answered(seconds * 1e3))

    def failed(self) -> None:
        """A request that was in order was not answered."""
        self._count(Health.failed)

    def save(self) -> None:
        """Write down what is new; often enough for a watch that looks each second or so."""
        with self._lock:
            if self._serves is not None:
                self._serves.save()

    def close(self) -> None:
        """The process ends as it should."""
        with self._lock:
            self._end()
            self._serves = None

    def _count(self, change: Callable[[Health], Health]) -> None:
        with self._lock:
            if self._serves is not None:
                self._serves.change(change(self._serves.health))

    def _end(self) -> None:
        if self._serves is not None:
            self._serves.change(self._serves.health.ended())
            self._serves.save()
