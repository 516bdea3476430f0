"""Conversion of a device's examples for a federation's learning task."""

from collections.abc import Sequence
from dataclasses import replace

from edge_client.data.classes import in_classes, numbers
from edge_client.data.dataset import LabelledData
from edge_client.data.tasks.labels import with_labels
from edge_client.data.tasks.registry import learning_task


def in_task(data: LabelledData, name: str, names: Sequence[str]) -> LabelledData:
    """The same examples with the labels of the task called `name`, in the order of its outputs' `names`.

    Raises `ConfigError` with the remedy for labels of another kind or with other names.
    """
    task = learning_task(name)
    known = with_labels(data, task.labels)
    if not task.named:
        known = replace(known, class_names=numbers(max(known.num_classes, 2)), named=False)
    elif names:
        known = in_classes(known, names)
    return replace(known, task=name)
