"""Conversion of a device's examples for a federation's learning task."""

from collections.abc import Sequence
from dataclasses import replace

from edge_client.data.classes import in_classes, misfit_of_numbers, numbers
from edge_client.data.dataset import LabelledData
from edge_client.data.tasks.labels import with_labels
from edge_client.data.tasks.registry import learning_task
from schemas.errors import ConfigError


def in_task(data: LabelledData, name: str, names: Sequence[str]) -> LabelledData:
    """The same examples with the labels of the task called `name`, in the order of its outputs' `names`.

    Raises `ConfigError` with the remedy for labels of another kind or with other names.
    """
    task = learning_task(name)
    known = with_labels(data, task.labels)
    if task.has_named_outputs and names:
        if task.labels == "numbers" and known.named and (why := misfit_of_numbers(known.class_names, names)):
            raise ConfigError(why)
        known = in_classes(known, names)
    elif not task.has_named_outputs or not known.named:
        known = _by_value(known, least=1 if task.has_named_outputs else 2)
    return replace(known, task=name)


def _by_value(data: LabelledData, *, least: int) -> LabelledData:
    """The examples with labels that are what the source calls them, with at least `least` classes.

    Classes below 0, which are no places, stay in their order.
    """
    labels = data.numbers
    if labels.ndim == 1 and labels.min(initial=0) < 0:
        return data
    greatest = int(labels.max(initial=0)) if labels.ndim == 1 else 0
    names = numbers(max(greatest + 1, data.num_classes, least))
    return replace(data, labels=labels, class_names=names, named=False)
