"""What a device must know again after its process was killed: its task at hand, and the result of it.

The blobs, what the device keeps to itself and the epochs that are done lie in files of their own; without a
memory nothing is wrong, the server offers the task anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.base import Frozen
from schemas.messages import Delivery, Task, TaskReply, Update
from schemas.names import Name
from schemas.tensors.chunks import BlobRef
from schemas.values import Attempt, RoundNumber

KEPT_RUNS = 16
"""Of runs that never said that they were over, the newest so many are remembered."""


class SessionSnapshot(Frozen):
    """The task that is not settled yet, its result once there is one, and the runs under way.

    `attempts` is the newest attempt of each run that this device was asked for, `masked` the last round of
    each that it has had keys for masks in.
    """

    version: Literal[1] = 1
    federation: Name
    device: Name
    task: Task | None = None
    result: Annotated[Update | Delivery | TaskReply, Field(discriminator="kind")] | None = None
    runs: tuple[Name, ...] = ()
    attempts: Mapping[Name, Attempt] = {}
    masked: Mapping[Name, RoundNumber] = {}

    @model_validator(mode="after")
    def _result_is_of_the_task(self) -> SessionSnapshot:
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
