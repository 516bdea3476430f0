"""The trainers of a device, and which of them a task is for."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from edge_client.training.choice import make_trainer
from schemas.messages import DeliverTask, Task
from schemas.messages.tasks import STEP
from schemas.values import TrainerName

if TYPE_CHECKING:
    from edge_client.training.trainer import Trainer

ROOM_BYTES = 1_000_000_000
"""Free memory in which the first trainer is imported in advance, whichever the server will choose."""


class TaskTrainers:
    """Makes the trainers in `names`, the best first, when a task first needs them.

    Without names there is one, that of `make()`.
    """

    def __init__(
        self,
        names: Sequence[TrainerName] = (),
        make: Callable[[TrainerName | None], "Trainer"] = make_trainer,
    ) -> None:
        self._names, self._make = names, make
        self._made: dict[TrainerName | None, Trainer] = {}
        self._last: TrainerName | None = names[0] if names else None

    def of(self, task: Task) -> "Trainer":
        """The trainer of a task: onnxruntime for one with a step graph, sent only where it is needed.

        A delivery without a step graph is for the trainer of the last task.
        """
        if self._names and (STEP in task.blobs or not isinstance(task, DeliverTask)):
            self._last = "onnx" if STEP in task.blobs and "onnx" in self._names else self._names[0]
        return self._trainer(self._last)

    def warm_up(self, free_memory: int | None) -> None:
        """Import the libraries of the first trainer, unless memory is short and another may be asked for."""
        if len(self._names) < 2 or free_memory is None or free_memory >= ROOM_BYTES:
            self._trainer(self._last)

    def _trainer(self, name: TrainerName | None) -> "Trainer":
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]
