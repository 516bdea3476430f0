"""Answers a task that asks for sums of the device's training examples; numpy is all that it needs."""

from typing import Any

from edge_client.agent.task_context import TaskContext
from edge_client.data.statistics import not_finite, statistics_of
from schemas.counted import counted
from schemas.errors import PeerError
from schemas.messages import TrainTask, Update
from schemas.statistics import StatisticsRequest
from schemas.values import Reason, TrainingMetrics


def do_statistics(
    task: TrainTask, request: StatisticsRequest, context: TaskContext, identity: dict[str, Any]
) -> Update:
    """Measure the training examples; the update's blob is in the store when this returns.

    Raises `PeerError` for fewer examples than the owner lets the server see the statistics of, and for values
    that have no statistics.
    """
    data = context.data.as_the_server_says(task).train
    if len(data) < context.min_examples:
        raise PeerError(
            f"{counted(len(data), 'example')}: statistics of fewer than {context.min_examples} tell too "
            "much of each "
            "(--min-examples)",
            reason=Reason.INELIGIBLE,
        )
    odd = not_finite(data)
    if odd:
        raise PeerError(f"{odd} has values that are no finite numbers", reason=Reason.NOT_FINITE)
    groups: dict[str, Any] = statistics_of(data, request, outputs=task.model.num_classes)
    blob = context.store.put_groups(groups, chunk_bytes=context.chunk_bytes)
    metrics = TrainingMetrics(examples=len(data), epochs=0, steps=0)
    return Update(**identity, blob=blob, spec=task.spec, metrics=metrics)
