"""`health.json` in a slot: counts of the processes that serve its model, and of their requests.

A process counts a start before it loads the model, and an end when it exits or serves another model. Since
processes start one after the other, a start without an end is a crash.
"""

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from edge_client.inference.model_slots import Slots
from edge_client.storage.atomic_files import write_synced
from schemas.base import Digest, Frozen
from schemas.values import Count

log = logging.getLogger(__name__)

FILE = "health.json"


class Health(Frozen):
    """Counts for the model with that digest; `busy_ms` is the sum over its requests.

    `refusals` are starts whose model could not be loaded or is not trusted.
    """

    digest: Digest
    starts: Count = 0
    ends: Count = 0
    requests: Count = 0
    errors: Count = 0
    refusals: Count = 0
    busy_ms: Annotated[float, Field(ge=0, le=1e15)] = 0.0

    @property
    def crashes(self) -> int:
        """Number of starts without an end, except the last one, which may be serving now."""
        return max(0, self.starts - self.ends - 1)

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0

    @property
    def mean_ms(self) -> float | None:
        answered = self.requests - self.errors
        return self.busy_ms / answered if answered > 0 else None

    def add(self, **counts: float) -> "Health":
        return self.model_copy(update={name: getattr(self, name) + more for name, more in counts.items()})


def read_health(folder: Path, digest: str) -> Health:
    """The health of the model in that slot; zeros if the file is invalid or of another model."""
    try:
        health = Health.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError):
        return Health(digest=digest)
    return health if health.digest == digest else Health(digest=digest)


def write_health(folder: Path, health: Health) -> None:
    """Replace the file, without a sync, since it is written often; a failure is only logged."""
    try:
        write_synced(folder / FILE, health.model_dump_json().encode(), durable=False)
    except OSError as error:
        log.warning("%s cannot be written: %s", folder / FILE, error)


# A start is written before the model is loaded, so that a model which crashes the process is counted.


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

    def on_loaded(self) -> None:
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

    def count_answer(self, seconds: float) -> None:
        self._count(requests=1, busy_ms=seconds * 1e3)

    def count_failure(self) -> None:
        """Count a valid request without an answer."""
        self._count(requests=1, errors=1)

    def save(self) -> None:
        """Write new counts; call about once a second."""
        with self._lock:
            if self._serving is not None:
                self._serving.save()

    def close(self) -> None:
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
