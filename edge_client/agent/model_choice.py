"""Which of several models a device exports: one rule, on examples that the device holds out."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.data.tasks.losses import losses_of
from edge_client.data.tasks.registry import learning_task
from edge_client.training.results import Evaluation
from schemas.messages import DeliverTask
from schemas.tensors.blobs import Arrays

MIN_EXAMPLES = 10  # Held-out examples without which models are not compared
UNEVEN = 2.0  # How many times more a device's classes differ from equally frequent ones than by chance
MAX_COMPARED = 1000  # Held-out examples at most that models are compared on: inputs take memory
SHARED, HALFWAY, PERSONAL = "shared", "halfway", "personal"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model's mean error and mean loss on held-out examples, and its `figures` of merit."""

    name: str
    arrays: Arrays
    error: float
    loss: float
    figures: Mapping[str, float] = field(default_factory=dict)


def skew(labels: NDArray[np.int64], classes: int) -> float:
    """How far the labels' shares are from equal ones, as a multiple of what chance makes of equal classes.

    Of N labels the mean distance of a class's share p is sqrt(2 p (1 - p) / (pi N)).
    """
    even, count = 1 / classes, max(1, len(labels))
    distance = np.abs(np.bincount(labels, minlength=classes) / count - even).mean()
    return float(distance / math.sqrt(2 * even * (1 - even) / (math.pi * count))) if classes > 1 else 0.0


def class_offsets(labels: NDArray[np.int64], classes: int, odds: float) -> NDArray[np.float32]:
    """What is added to a classifier's scores [classes] where classes are as frequent as these labels.

    Scores are logarithms of probabilities up to a constant, and those change with the frequency of a class as
    that does (Saerens et al. 2002, equation 2.4; the shared model's classes count as equally frequent). Each
    class counts one example more than there are, and at least an `odds`-th of the most frequent one.
    """
    counts = np.bincount(labels, minlength=classes) + 1.0
    return np.asarray(np.log(np.maximum(counts / counts.max(), 1 / odds)), np.float32)


def is_uneven(data: LocalData, classes: int) -> bool:
    """Whether a device's classes are far from equally frequent, and enough are held out to compare models."""
    return len(data.held_out) >= MIN_EXAMPLES and skew(_labels(data), classes) > UNEVEN


def offsets_of(task: DeliverTask, data: LocalData) -> NDArray[np.float32]:
    """The task's `class_offsets` of the device's examples; zeros where it has no use for them."""
    classes, asked = task.model.num_classes, task.class_odds > 1 and learning_task(task.model.task).exclusive
    if not asked or not is_uneven(data, classes):
        return np.zeros(classes, np.float32)
    return class_offsets(_labels(data), classes, task.class_odds)


def useful_offsets(
    task: DeliverTask, data: LocalData, outputs: Callable[[NDArray[np.float32]], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The offsets of the outputs, if they are better with them on held-out examples; else zeros."""
    offsets = offsets_of(task, data)
    if not offsets.any():
        return offsets
    compared = some(data.held_out)
    inputs = compared.inputs()
    found = outputs(inputs)
    shared, fitted = (
        measure_candidate(SHARED, {}, compared, found + shift, inputs) for shift in (0 * offsets, offsets)
    )
    return 0 * offsets if choose(shared, [fitted]) is shared else offsets


def _labels(data: LocalData) -> NDArray[np.int64]:
    return np.concatenate([data.train.labels, data.held_out.labels])


def some(data: LabelledData) -> LabelledData:
    """The data, or `MAX_COMPARED` examples that are evenly spaced in it."""
    if len(data) <= MAX_COMPARED:
        return data
    return data.subset(np.linspace(0, len(data) - 1, MAX_COMPARED).astype(np.int64))


def measure_candidate(
    name: str, arrays: Arrays, data: LabelledData, outputs: NDArray[np.float32], inputs: NDArray[np.float32]
) -> Candidate:
    """The candidate with these outputs [N, L] of the data's inputs [N, ...]."""
    learning, targets = data.learning_task, data.targets(inputs)
    loss = float(losses_of(learning)(outputs, targets).mean())
    errors = np.asarray(learning.errors(data.answers(outputs, targets)), np.float64)
    return Candidate(
        name, arrays, float(errors.mean()), loss, Evaluation.of(data, outputs, loss, targets).metrics
    )


def choose(shared: Candidate, others: Sequence[Candidate]) -> Candidate:
    """The model of the lowest loss, of the shared one and those others that make no more errors."""
    return min((shared, *(new for new in others if new.error <= shared.error)), key=lambda each: each.loss)
