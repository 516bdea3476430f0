"""Counts how often the work on a task was begun: one that ends the process is not begun for ever."""

from edge_client.agent.session.snapshot import WorkStarts
from schemas.messages import Task

MAX_STARTS = 2
"""Starts of the same work that may end with the process."""
GIVEN_UP = (
    f"the client's process has ended {MAX_STARTS} times during this task without a result, as it does "
    "without memory"
)


def another(starts: WorkStarts | None, task: Task) -> WorkStarts:
    """The count with another start of the work on this task."""
    if starts is None or not _is_of(starts, task):
        return WorkStarts(run=task.run, attempt=task.attempt)
    return starts.model_copy(update={"count": starts.count + 1})


def reached(starts: WorkStarts | None, task: Task, epoch: int) -> WorkStarts | None:
    """The count after an epoch: work that gets further than ever before has begun once."""
    if starts is None or not _is_of(starts, task) or epoch <= starts.epoch:
        return starts
    return starts.model_copy(update={"count": 1, "epoch": epoch})


def without_last(starts: WorkStarts | None) -> WorkStarts | None:
    """The count without the last start, which ended with the process as its owner wished."""
    return starts and starts.model_copy(update={"count": max(0, starts.count - 1)})


def is_given_up(starts: WorkStarts | None, task: Task) -> bool:
    """Whether the work on this task may not be begun again."""
    return starts is not None and _is_of(starts, task) and starts.count >= MAX_STARTS


def _is_of(starts: WorkStarts, task: Task) -> bool:
    return (starts.run, starts.attempt) == (task.run, task.attempt)
