"""What a device must know again after its process was killed: its task at hand, and the result of it.

Written after each change, all at once, and read when the process begins. The blobs, what the device keeps to
itself and the epochs that are done lie in files of their own; without a memory nothing is wrong, the server
offers the task anew.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from edge_client.files import write_synced
from schemas.blobs import BlobRef
from schemas.frozen import Frozen
from schemas.messages import Delivery, Task, TaskReply, Update
from schemas.names import Name
from schemas.values import Attempt

log = logging.getLogger(__name__)

KEPT_RUNS = 16
"""Of runs that never said that they were over, the newest so many are remembered."""


class Memory(Frozen):
    """The task that is not settled yet, its result once there is one, and the runs under way.

    `attempts` is the newest attempt of each run that this device was asked for.
    """

    version: Literal[1] = 1
    federation: Name
    device: Name
    task: Task | None = None
    result: Annotated[Update | Delivery | TaskReply, Field(discriminator="kind")] | None = None
    runs: tuple[Name, ...] = ()
    attempts: Mapping[Name, Attempt] = {}

    @model_validator(mode="after")
    def _result_is_of_the_task(self) -> Memory:
        task, result = self.task, self.result
        if result is not None and (task is None or (task.run, task.attempt) != (result.run, result.attempt)):
            raise ValueError("the result is of another task")
        return self

    def blobs(self) -> frozenset[str]:
        """Digests of the blobs that the task needs or has made."""
        return frozenset(ref.digest for ref in blobs_of(self.task, self.result))


def blobs_of(task: Task | None, result: object) -> tuple[BlobRef, ...]:
    """The blobs that a task names and the one that it ended in."""
    made = (result.blob,) if isinstance(result, Update) else ()
    return (*(task.blobs.values() if task else ()), *made)


class MemoryFile:
    """A device's memory on disk; where it cannot be written or read there is none, and the device goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Memory | None = None

    def load(self, federation: str, device: str) -> Memory:
        """What was remembered last; nothing of a file that is damaged or another device's or version's."""
        nothing = Memory(federation=federation, device=device)
        try:
            memory = Memory.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return nothing
        except (OSError, ValidationError) as error:
            log.warning("%s is ignored: %s", self._path, str(error).partition("\n")[0])
            return nothing
        if (memory.federation, memory.device) != (federation, device):
            log.warning("%s is ignored: it is of %s in %s", self._path, memory.device, memory.federation)
            return nothing
        return memory

    def save(self, memory: Memory) -> bool:
        """Remember this instead; returns whether it is anything new."""
        if memory == self._last:
            return False
        self._last = memory
        try:
            write_synced(self._path, memory.model_dump_json().encode())
        except OSError as error:
            # An older memory would bring back a task that is over; none at all is never wrong.
            log.warning("%s cannot be written, a restart will begin the task anew: %s", self._path, error)
            with contextlib.suppress(OSError):
                self._path.unlink()
        return True
