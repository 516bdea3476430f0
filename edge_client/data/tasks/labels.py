"""Labels by kind: which ones a learning task takes as they are, which it converts, which it refuses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edge_client.data.classes import are_numbers, in_classes, misfit_of_numbers, numbers
from edge_client.data.dataset import LabelledData, Labels
from edge_client.data.tasks.learning_task import LabelKind
from edge_client.data.tasks.registry import learning_task
from schemas.errors import ConfigError, format_count

MAX_WHOLE = 10  # distinct whole numbers, some negative, that are classes unless somebody says it

NO_LABELS = (
    "the rows have no labels: name their column by label=COLUMN, or learn without labels by [model] task = "
    '"anomaly"'
)


def with_labels(data: LabelledData, kind: LabelKind) -> LabelledData:
    """The same examples with labels of this kind; `ConfigError` with the remedy for labels of another."""
    if data.unlabelled and kind != "none":
        raise ConfigError(NO_LABELS)
    if data.has_boxes and kind != "boxes":
        raise ConfigError("the labels are boxes in pictures", remedy='set [model] task = "detection"')
    return _TAKEN[kind](data)


def _classes(data: LabelledData) -> LabelledData:
    """Labels that are class numbers int64 [N]; few whole numbers [N, 1] are classes in their order."""
    if data.labels.shape[1:] == (1,) and (found := classes_by_value(data.labels[:, 0])):
        places, names = found
        about = data.preprocessing.model_copy(
            update={"class_names": names, "target_mean": (), "target_std": ()}
        )
        return replace(data, labels=places, class_names=names, named=True, preprocessing=about)
    if data.labels.ndim != 1:
        raise ConfigError(
            f"the labels are {format_count(data.labels.shape[1], 'number')} per example, and "
            "classification takes one class",
            remedy='set [model] task = "regression" or "multi-label", or make classes of them '
            "(numpy.argmax(labels, axis=1) of one-hot rows, numpy.digitize of measured numbers)",
        )
    return data


def classes_by_value(numbers: Labels, *, most: int = MAX_WHOLE) -> tuple[Labels, tuple[str, ...]] | None:
    """Class numbers [N] and names of whole numbers [N] such as -1 and 1; None if they are others, or many."""
    values, places = np.unique(numbers, return_inverse=True)
    if len(values) > most or (values != np.floor(values)).any():
        return None
    return places, tuple(f"{value:.0f}" for value in values)


def _flags(data: LabelledData) -> LabelledData:
    """A 0 or 1 per class [N, L] in float32."""
    if data.labels.ndim != 2:
        raise ConfigError(
            "multi-label takes a 0 or 1 per class, labels [N, classes], and these are class numbers",
            remedy='set [model] task = "classification"',
        )
    wrong = (data.labels != 0) & (data.labels != 1)
    if wrong.any():
        place = tuple(int(axis[0]) for axis in np.nonzero(wrong))
        value = float(data.labels[place])
        raise ConfigError(f"labels{list(place)} is {value:g}: multi-label takes a 0 or 1 per class")
    return data


def _numbers(data: LabelledData) -> LabelledData:
    """Numbers [N, L] in float32; class numbers, or names that are whole numbers, are one per example."""
    if data.labels.ndim == 2:
        return data
    if not are_numbers(data.class_names):
        raise ConfigError(
            "regression takes numbers, and these labels are classes with names",
            remedy='set [model] task = "classification", or save the numbers as floats',
        )
    preprocessing = data.preprocessing.model_copy(update={"class_names": ("target",)})
    column = replace(data, named=False).numbers.astype(np.float32)[:, None]
    return replace(data, labels=column, class_names=("target",), preprocessing=preprocessing)


def _boxes(data: LabelledData) -> LabelledData:
    if data.has_boxes:
        return data
    raise ConfigError(
        "detection takes boxes, labels [N, M, 5], and these are others",
        remedy="read pictures with boxes by yolo:FOLDER, voc:FOLDER or coco:FILE",
    )


_TAKEN: Mapping[LabelKind, Callable[[LabelledData], LabelledData]] = {
    "classes": _classes,
    "flags": _flags,
    "numbers": _numbers,
    "boxes": _boxes,
    # The network never sees any.
    "none": lambda data: data,
}


# Conversion of a device's examples for a federation's learning task.
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
