"""Every learning task and every loss by name."""

import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from edge_client.data.tasks import detection, detection_loss, metrics
from edge_client.data.tasks.learning_task import Answers, Array, LearningTask, Metric
from edge_client.system.plugins import Registry, group_of
from schemas.errors import ConfigError, nearest


def _softmax(outputs: Array, _: Array) -> Array:
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def _reconstruction_error(outputs: Array, inputs: Array) -> Array:
    """The reconstruction error [N, 1]."""
    flat = inputs.reshape(len(inputs), -1)
    return metrics.reconstruction_errors(Answers(outputs, flat, flat))[:, None]


_ERRORS = (
    Metric("mae", metrics.mean_absolute_error, higher_is_better=False, share=False),
    Metric("rmse", metrics.root_mean_square_error, higher_is_better=False, share=False, power=2),
    Metric("r2", metrics.r2, share=False),
)


_REFERENCES = (
    Metric("no-change", metrics.naive_error(metrics.NO_CHANGE), higher_is_better=False, share=False),
    Metric("season-ago", metrics.naive_error(metrics.SEASON_AGO), higher_is_better=False, share=False),
)


def _of_numbers(name: str, summary: str, references: tuple[Metric, ...] = ()) -> LearningTask:
    return LearningTask(
        name=name,
        summary=summary,
        labels="numbers",
        loss="squared-error",
        metrics=_ERRORS,
        errors=lambda answers: np.abs(answers.outputs.astype(np.float64) - answers.labels).mean(1),
        by_output=("mae", metrics.absolute_errors),
        answers=lambda outputs, _: outputs,
        references=references,
    )


CLASSIFICATION = LearningTask(
    name="classification",
    summary="one class per example; cross-entropy, led by accuracy",
    labels="classes",
    loss="cross-entropy",
    metrics=(
        Metric("accuracy", metrics.accuracy),
        Metric("balanced-accuracy", metrics.balanced_accuracy),
        Metric("macro-f1", metrics.macro_f1),
        Metric("auroc", metrics.class_auroc),
    ),
    errors=lambda answers: np.asarray(answers.outputs.argmax(1) != answers.labels, np.float64),
    by_output=("recall", metrics.recalls),
    answers=_softmax,
    by_class=metrics.class_counts,
)

TASKS: Registry[LearningTask] = Registry(
    "task",
    {
        task.name: task
        for task in (
            CLASSIFICATION,
            LearningTask(
                name="multi-label",
                summary="a yes or no per class; binary cross-entropy, led by macro F1",
                labels="flags",
                loss="binary-cross-entropy",
                metrics=(
                    Metric("macro-f1", metrics.flag_macro_f1),
                    Metric("flag-accuracy", metrics.flag_accuracy),
                    Metric("auroc", metrics.flag_auroc),
                ),
                errors=lambda answers: ((answers.outputs > 0) != (answers.labels > 0.5)).mean(1),
                by_output=("f1", metrics.flag_f1s),
                answers=lambda outputs, _: 1 / (1 + np.exp(-outputs)),
                by_class=metrics.flag_counts,
            ),
            _of_numbers(
                "regression", "one or more numbers per example; squared error, led by the mean absolute error"
            ),
            _of_numbers(
                "forecasting", "the next steps of a series from a window of it; as regression", _REFERENCES
            ),
            LearningTask(
                name="anomaly",
                summary="reconstruction of unlabelled examples; squared error, led by AUROC where known",
                labels="none",
                loss="squared-error",
                metrics=(
                    Metric("auroc", metrics.anomaly_auroc),
                    Metric(
                        "reconstruction",
                        metrics.mean_reconstruction_error,
                        higher_is_better=False,
                        share=False,
                    ),
                ),
                errors=metrics.reconstruction_errors,
                by_output=None,
                answers=_reconstruction_error,
                targets=lambda inputs, _: inputs.reshape(len(inputs), -1),
                outputs=lambda _, shape: math.prod(shape),
                usual=0.99,
            ),
            LearningTask(
                name="detection",
                summary="boxes with classes in pictures; FCOS's loss, led by the mean precision at IoU 0.5",
                labels="boxes",
                loss="detection",
                metrics=(
                    Metric(
                        "map50", detection.map50, of_counts=detection.mean_of_counts, width=detection.COUNTED
                    ),
                    Metric(
                        "map",
                        detection.mean_precision,
                        of_counts=detection.mean_of_counts,
                        width=detection.COUNTED_AT_ALL,
                    ),
                ),
                errors=detection.picture_errors,
                by_output=("ap50", detection.class_precisions),
                answers=detection.boxes_of,
                targets=detection_loss.targets,
                width=lambda classes, shape: (classes + detection.BOX) * len(detection.cells(shape)[1]),
                by_class=detection.box_counts,
                counts=detection.score_counts,
            ),
        )
    },
)


def learning_task(name: str) -> LearningTask:
    """The task of that name; `ConfigError` with the nearest match for another."""
    if name not in TASKS:
        raise ConfigError(f"unknown task '{name}'{nearest(name, TASKS)}", remedy=f"one of {', '.join(TASKS)}")
    return TASKS[name]


T = TypeVar("T")

LOSSES: Registry[Callable[[Array, Array], Array]] = Registry(
    "loss",
    {
        "cross-entropy": metrics.cross_entropy,
        "binary-cross-entropy": metrics.binary_cross_entropy,
        "squared-error": metrics.squared_error,
        "detection": detection_loss.losses,
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
