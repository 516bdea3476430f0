"""Losses of each example in double precision, by the names that learning tasks give them."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from edge_client.data.tasks.learning_task import Array, LearningTask
from edge_client.system.plugins import Registry, group_of
from schemas.errors import ConfigError

T = TypeVar("T")


def cross_entropy(outputs: Array, labels: Array) -> Array:
    """-log softmax(outputs)[label] [N], of outputs [N, classes] and labels int64 [N]."""
    shifted = outputs.astype(np.float64) - outputs.max(1, keepdims=True)
    return np.asarray(np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels])


def binary_cross_entropy(outputs: Array, flags: Array) -> Array:
    """The mean over classes of -log p(flag) [N], of outputs [N, L] before the sigmoid and flags [N, L]."""
    x = outputs.astype(np.float64)
    return np.asarray((np.maximum(x, 0) - x * flags + np.log1p(np.exp(-np.abs(x)))).mean(1))


def squared_error(outputs: Array, targets: Array) -> Array:
    """The mean square of the differences of outputs and targets [N, L], per example [N]."""
    return np.asarray(np.square(outputs.astype(np.float64) - targets).mean(1))


LOSSES: Registry[Callable[[Array, Array], Array]] = Registry(
    "loss",
    {
        "cross-entropy": cross_entropy,
        "binary-cross-entropy": binary_cross_entropy,
        "squared-error": squared_error,
    },
)


def losses_of(task: LearningTask) -> Callable[[Array, Array], Array]:
    """The loss of each example [N]; `ConfigError` for a plugin's task whose loss is missing."""
    return loss_in(LOSSES, task)


def loss_in(losses: Registry[T], task: LearningTask) -> T:
    """As `losses_of`, in NumPy or torch."""
    if task.loss not in losses:
        raise ConfigError(
            f"task '{task.name}': nothing named '{task.loss}' is in the entry point group "
            + group_of(losses.concept)
        )
    return losses[task.loss]
