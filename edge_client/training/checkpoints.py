"""Checkpoints after epochs: a killed training resumes from the last one and ends in the same bytes."""

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas import errors, messages

log = logging.getLogger(__name__)

INTERVAL_S = 5.0  # shortest time between two checkpoints in seconds
QUICK_S = 0.25  # a checkpoint that takes longer, in seconds, delays the next one in proportion

Values = Mapping[str, Any]


class UnfitCheckpoint(errors.EdgeError):
    """A checkpoint does not fit the training that it should resume."""


class EpochCheckpoint:
    """The checkpoint of one task, written at most every `interval_s` seconds; another key is ignored.

    With the default interval it takes at most a twentieth of the time, even on a slow disk.
    """

    def __init__(
        self, path: Path, key: str, *, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._key = path, key
        self._interval_s, self._clock = interval_s, clock
        self._last, self._pause_s = clock(), interval_s

    def load_values(self) -> Values | None:
        """The last saved values; None if there are none that can be read."""
        from edge_client.storage.state_file import NotPlainFile, read_plain

        try:
            values = read_plain(self._path)
        except NotPlainFile as error:
            if self._path.exists():
                log.warning("a checkpoint is ignored: %s", error)
            return None
        return values["training"] if values.get("key") == self._key else None

    def save(self, values: Callable[[], Values]) -> None:
        """Write `values()` if the last checkpoint is old enough; a failure is only logged."""
        from edge_client.storage.state_file import write_plain

        begun = self._clock()
        if begun - self._last < self._pause_s:
            return
        try:
            write_plain(self._path, {"key": self._key, "training": values()})
        except Exception as error:
            # The disk may be full, or a user's network may hold values that no plain file can.
            log.warning("no checkpoint could be written, training continues: %s", error)
        self._last = self._clock()
        self._pause_s = self._interval_s * max(1.0, (self._last - begun) / QUICK_S)

    def drop(self) -> None:
        self._path.unlink(missing_ok=True)


class EpochCheckpoints:
    """A folder with the checkpoints of the current task: of its training, and of the device's own model."""

    def __init__(self, folder: Path, *, interval_s: float = INTERVAL_S) -> None:
        self._folder, self._interval_s = folder, interval_s

    def of(self, task: messages.Task, *, examples: int, own: bool = False) -> EpochCheckpoint:
        """The checkpoint of this task and number of examples, or that of the device's `own` model."""
        # What the result depends on, which the remaining time is not.
        content = hashlib.sha256(task.model_dump_json(exclude={"deadline_s"}).encode()).hexdigest()
        key = f"1 {content} {examples}"
        return EpochCheckpoint(self._path(task, own=own), key, interval_s=self._interval_s)

    def keep_only(self, task: messages.Task | None) -> None:
        """Delete the checkpoints of all other tasks."""
        kept = [] if task is None else [self._path(task, own=own) for own in (False, True)]
        for path in self._folder.glob("*"):
            if path not in kept:
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, task: messages.Task, *, own: bool) -> Path:
        return self._folder / f"{task.run}-{task.round}-{task.attempt}{'-own' * own}.safetensors"
