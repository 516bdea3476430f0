"""What a device says that has not trained: the benchmarks' devices make their answers otherwise."""

from schemas.messages import Task, Update
from schemas.tensors.blobs import BlobRef
from schemas.values import TrainingMetrics


def answer(task: Task, device: str, blob: BlobRef, *, examples: int) -> Update:
    """The update that `blob` is, of all of the task's sub-model; its metrics are made up."""
    return Update(
        federation=task.federation,
        device=device,
        run=task.run,
        round=task.round,
        attempt=task.attempt,
        blob=blob,
        spec=task.spec,
        metrics=TrainingMetrics(examples=examples, epochs=1, steps=19, train_loss=1.0),
    )
