"""What survives the device's process: the task at hand, its result, the runs under way.

Blobs, private state and checkpoints are in files of their own. Without a snapshot the server offers the task
again.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.base import Frozen, Name
from schemas.messages import Delivery, Task, TaskReply, Update, tasks
from schemas.tensors.chunks import BlobRef
from schemas.values import Attempt, Epoch, RoundNumber

KEPT_RUNS = 16  # how many runs are remembered; runs that never announced their end would pile up


class WorkStarts(Frozen):
    """How often the work on a task has been begun without an end, and the last epoch that was reached."""

    run: Name
    attempt: Attempt
    count: int = Field(default=1, ge=0)
    epoch: int = Field(default=0, ge=0)


class SessionSnapshot(Frozen):
    """The unsettled task, its result if there is one, and the runs under way.

    `attempts` maps runs to the newest attempt that was offered to this device, `epochs` to the newest epoch
    of a server, `masked` to the last round in which the device had keys for masks. `starts` are those of the
    last task that was worked on, unless it ended in a result.
    """

    version: Literal[1] = 1
    federation: Name
    device: Name
    task: tasks.StoredTask | None = None
    result: Annotated[Update | Delivery | TaskReply, Field(discriminator="kind")] | None = None
    runs: tuple[Name, ...] = ()
    attempts: Mapping[Name, Attempt] = {}
    epochs: Annotated[Mapping[Name, Epoch], Field(exclude_if=lambda known: not known)] = {}
    masked: Mapping[Name, RoundNumber] = {}
    starts: Annotated[WorkStarts | None, Field(exclude_if=lambda starts: starts is None)] = None

    @model_validator(mode="after")
    def _result_is_of_the_task(self) -> "SessionSnapshot":
        task, result = self.task, self.result
        if result is not None and (task is None or (task.run, task.attempt) != (result.run, result.attempt)):
            raise ValueError("the result is of another task")
        return self

    def blobs(self) -> frozenset[str]:
        return frozenset(ref.digest for ref in blobs_of(self.task, self.result))


def blobs_of(task: Task | None, result: object) -> tuple[BlobRef, ...]:
    produced = (result.blob,) if isinstance(result, Update) else ()
    return (*(task.blobs.values() if task else ()), *produced)
