"""The epochs of a task that are done, on disk: a killed training goes on from the last of them.

Everything that the rest of a training depends on is kept, so that it ends in the same bytes as one that was
never disturbed.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas.errors import EdgeError
from schemas.messages import Task

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
"""Shortest time between two checkpoints: a kill costs so much work at most, and the epoch under way."""
QUICK_S = 0.25
"""A checkpoint that takes longer, as on a slow card, stretches the time to the next one in proportion."""

Values = Mapping[str, Any]


class UnfitCheckpoint(EdgeError):
    """A checkpoint does not fit the training that it is to go on with."""


class EpochCheckpoint:
    """The one checkpoint of one task, written at most every `interval_s` seconds of `clock`.

    With the usual interval it takes a twentieth of the time at most, however slow the disk. `key` is what it
    must be of: a checkpoint of anything else is none.
    """

    def __init__(
        self, path: Path, key: str, *, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._key = path, key
        self._interval_s, self._clock = interval_s, clock
        self._last, self._pause_s = clock(), interval_s

    def load(self) -> Values | None:
        """What was saved last; none where nothing was, or nothing that can be read."""
        from edge_client.storage.state_file import NotPlainFile, read_plain

        try:
            values = read_plain(self._path)
        except NotPlainFile as error:
            if self._path.exists():
                log.warning("a checkpoint is ignored: %s", error)
            return None
        return values["training"] if values.get("key") == self._key else None

    def save(self, values: Callable[[], Values]) -> None:
        """Keep `values()` if the last one is old enough; what cannot be kept costs a warning, no more."""
        from edge_client.storage.state_file import write_plain

        begun = self._clock()
        if begun - self._last < self._pause_s:
            return
        try:
            write_plain(self._path, {"key": self._key, "training": values()})
        except Exception as error:
            # The disk may be full, and a user's own network may hold what no plain file can.
            log.warning("no checkpoint could be written, training goes on: %s", error)
        self._last = self._clock()
        self._pause_s = self._interval_s * max(1.0, (self._last - begun) / QUICK_S)

    def drop(self) -> None:
        """Forget it."""
        self._path.unlink(missing_ok=True)


class EpochCheckpoints:
    """A folder of checkpoints: one of the task at hand."""

    def __init__(self, folder: Path, *, interval_s: float = INTERVAL_S) -> None:
        self._folder, self._interval_s = folder, interval_s

    def of(self, task: Task, *, examples: int) -> EpochCheckpoint:
        """The checkpoint of this very task on this many examples."""
        return EpochCheckpoint(self._path(task), _key(task, examples), interval_s=self._interval_s)

    def keep_only(self, task: Task | None) -> None:
        """Forget those of all other tasks."""
        kept = None if task is None else self._path(task)
        for path in self._folder.glob("*"):
            if path != kept:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, task: Task) -> Path:
        return self._folder / f"{task.run}-{task.round}-{task.attempt}.safetensors"


def _key(task: Task, examples: int) -> str:
    """What the bytes of the result depend on; how much time is left is told anew with each offer."""
    said = task.model_dump_json(exclude={"deadline_s"})
    return f"1 {hashlib.sha256(said.encode()).hexdigest()} {examples}"
