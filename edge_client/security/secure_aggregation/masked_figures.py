"""What a device measures of a model, as numbers that masks can hide, and back.

Weighted by its held-out examples, a device sends each figure of the task to the metric's power, its loss, and
each class's share of the examples; whether it has a figure is a number too.
"""

import numpy as np

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import learning_task
from edge_client.security.secure_aggregation.masked_statistics import Numbers, Shapes
from schemas.messages import TrainTask
from schemas.tensors.blobs import Arrays
from schemas.values import ModelSpec, TrainingMetrics

FIGURES, KNOWN, CLASSES = "figures", "known", "classes"
LOSS = Metric("loss", lambda answers: None, higher_is_better=False, share=False)
LEAST_KNOWN = 1e-6
"""A smaller share of examples that have a figure is rounding."""


def only_measures(task: TrainTask) -> bool:
    """Whether a task asks for figures of a model and nothing else."""
    return task.training.local_epochs == 0 and task.returned == () and task.statistics is None


def _metrics(model: ModelSpec) -> tuple[Metric, ...]:
    """The metrics of the task, then the loss."""
    return (*learning_task(model.task).metrics, LOSS)


def figure_shapes(model: ModelSpec, *, by_class: bool) -> Shapes:
    """The numbers of a measurement."""
    count = len(_metrics(model))
    shapes: dict[str, tuple[int, ...]] = {FIGURES: (count,), KNOWN: (count,)}
    return {**shapes, CLASSES: (model.num_classes, 2)} if by_class else shapes


def as_numbers(metrics: TrainingMetrics, task: TrainTask) -> dict[str, Numbers]:
    """The numbers of what this device has measured."""
    known = {**metrics.metrics, LOSS.name: metrics.received_loss}
    found = [(known.get(metric.name), metric.power) for metric in _metrics(task.model)]
    numbers = {
        FIGURES: np.array([0.0 if value is None else value**power for value, power in found]),
        KNOWN: np.array([float(value is not None) for value, _ in found]),
    }
    if task.by_class:
        counts = np.zeros((task.model.num_classes, 2))
        counts[: len(metrics.by_class)] = np.reshape(metrics.by_class, (-1, 2))
        numbers[CLASSES] = counts / max(1, metrics.measured_on)
    return numbers


def as_measured(means: Arrays, model: ModelSpec, examples: int) -> TrainingMetrics:
    """What a cohort has measured with these means over its held-out examples.

    Masked numbers may be anything: shares and counts are brought to where they can be.
    """
    numbers = zip(*(np.asarray(means[part], np.float64).tolist() for part in (FIGURES, KNOWN)), strict=True)
    found = {
        metric.name: _of_mean(metric, figure / known)
        for metric, (figure, known) in zip(_metrics(model), numbers, strict=True)
        if known > LEAST_KNOWN
    }
    loss = found.pop(LOSS.name, None)
    counts = np.maximum(0, np.rint(np.asarray(means.get(CLASSES, ()), np.float64) * examples))
    return TrainingMetrics(
        examples=examples,
        epochs=0,
        steps=0,
        received_loss=loss,
        accuracy=found.get("accuracy"),
        metrics=found,
        measured_on=examples,
        by_class=tuple((int(held_out), int(min(right, held_out))) for held_out, right in counts),
    )


def _of_mean(metric: Metric, mean: float) -> float:
    """The figure whose mean over the examples, to the metric's power, is `mean`."""
    if metric.share or metric.power > 1 or metric is LOSS:
        mean = max(0.0, mean)
    figure: float = mean ** (1 / metric.power)
    return min(1.0, figure) if metric.share else figure
