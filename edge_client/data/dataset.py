"""Labelled examples as a frozen value: raw pixels, labels, and the preprocessing of pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.classes import by_number, numbers
from edge_client.data.tasks.detection import BOX, NO_BOX
from edge_client.data.tasks.learning_task import Answers, LearningTask
from edge_client.data.tasks.metrics import naive_forecasts
from edge_client.data.tasks.registry import CLASSIFICATION, learning_task
from schemas.errors import ConfigError
from schemas.values import Feature, Preprocessing, Resizing, SkippedFiles

Pixels = NDArray[Any]
Inputs = NDArray[np.float32]
Labels = NDArray[Any]
"""Class numbers int64 [N], float32 [N, L] of numbers or of a 0 or 1 per class, or boxes float32 [N, M, 5]."""


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Examples before preprocessing.

    images [N, C, H, W], or [N, ...] of another kind, uint8 or float32; labels int64 [N] below the number of
    names, or float32 [N, names], or boxes [N, M, 5] of `tasks.detection`; `ConfigError` otherwise. If `named`
    is false, the names of classes are the numbers that the source calls them by. `resizable` images come from
    picture files. `task` is the name of the learning task. `skipped` are files or rows of the source that
    could not be read. What is being written is left out until `settles_at`, in seconds since 1970. Examples
    of one of the `origins` [N], such as recordings, stay together when data is shared out or held out; None:
    each is its own. A `question` is what a network has to say of examples [A, B] that may be pictures or
    signals; `unscaled` are whole numbers that would be scaled if they were pictures. `unlabelled` rows state
    no labels, and have zeros. `sizes` [N, 2] are the heights and widths of pictures that were brought to one
    size; `pictures` is their shape where images are features of them.
    """

    images: Pixels
    labels: Labels
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    named: bool = True
    resizable: bool = False
    task: str = CLASSIFICATION.name
    skipped: SkippedFiles | None = None
    settles_at: float | None = None
    origins: NDArray[np.int64] | None = None
    question: str = ""
    unscaled: bool = False
    unlabelled: bool = False
    sizes: NDArray[np.int64] | None = None
    pictures: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count, shape = len(self.images), self.labels.shape
        boxes = (count, *shape[1:2], BOX)
        if self.images.ndim < 2 or shape not in ((count,), (count, self.num_classes), boxes):
            raise ConfigError(
                f"images {self.images.shape} and labels {shape} are not [N, ...] and [N], or [N, names] "
                f"with {self.num_classes} names, or [N, M, {BOX}]"
            )
        if self.labels.ndim == 2 or not count:
            return
        classes, least = (self.labels[:, :, 0], NO_BOX) if self.has_boxes else (self.labels, 0)
        if not least <= classes.min() <= classes.max() < self.num_classes:
            raise ConfigError(
                f"labels are {classes.min():g} to {classes.max():g}, "
                f"{self.num_classes} classes need {least} to {self.num_classes - 1}"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def has_boxes(self) -> bool:
        """Whether labels are boxes [N, M, 5]."""
        return self.labels.ndim == 3

    @property
    def numbers(self) -> Labels:
        """Labels [N] without names as the source has them; other labels as they are."""
        if self.named or self.labels.ndim > 1:
            return self.labels
        return np.array([int(name) for name in self.class_names], np.int64)[self.labels]

    @property
    def own_classes(self) -> tuple[str, ...]:
        """The classes of this data: all with names, but of numbers those that occur."""
        if self.named or self.labels.ndim > 1:
            return self.class_names
        # numpy.unique would take another megabyte of a small board.
        return tuple(self.class_names[place] for place in np.flatnonzero(np.bincount(self.labels)))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example, [C, H, W] of an image."""
        return tuple(self.images.shape[1:])

    @property
    def in_units(self) -> bool:
        """Whether the examples are pictures whose full brightness is 255, by their scale."""
        return self.resizable or (self.images.ndim == 4 and self.preprocessing.scale == 255.0)

    @property
    def num_classes(self) -> int:
        """Number of classes, including those without examples, or of numbers per example."""
        return len(self.class_names)

    @property
    def columns(self) -> tuple[Feature, ...]:
        """What the features [N, columns, ...] are, where they have names."""
        return self.preprocessing.columns

    @property
    def learning_task(self) -> LearningTask:
        return learning_task(self.task)

    def targets(self, inputs: Inputs) -> Labels:
        """What the loss compares a network's outputs with: the labels, or the inputs themselves."""
        if self.has_boxes:
            # Boxes are assigned by the shape of pictures, which features of them do not have.
            inputs = np.broadcast_to(np.float32(0), (len(self), *(self.pictures or self.input_shape)))
        targets = self.learning_task.targets(inputs, self.labels)
        return (
            scale_labels(targets, self.preprocessing) if self.learning_task.labels == "numbers" else targets
        )

    def answers(self, outputs: NDArray[Any], targets: Labels) -> Answers:
        """A network's outputs [N, L] for these examples, in the units of the labels."""
        if self.learning_task.labels == "numbers":
            outputs = in_units(outputs, self.preprocessing)
        return Answers(outputs, targets, self.labels, self._naive)

    @cached_property
    def _naive(self) -> NDArray[Any]:
        """The naive forecasts of these labels; none of other tasks."""
        if not self.learning_task.references:
            return np.zeros(0)
        return naive_forecasts(
            self.images, self.labels, self.class_names, [column.name for column in self.columns]
        )

    @property
    def strata(self) -> NDArray[np.int64]:
        """Numbers [N] by which examples are split evenly: classes, or tenths of the first number's values.

        Of a picture with boxes it is the class of most of them, the first of several; without any it is the
        number of classes.
        """
        if self.labels.ndim == 1:
            return self.labels
        if self.has_boxes:
            counts = (self.labels[:, :, :1] == np.arange(self.num_classes)).sum(1)
            return np.where(counts.any(1), counts.argmax(1), self.num_classes)
        first = self.labels[:, 0]
        cuts = np.quantile(first, np.arange(1, 10) / 10) if len(first) else first
        return np.searchsorted(cuts, first, side="right")

    @property
    def only_class(self) -> str | None:
        """The name of the class that all examples have; None if there are several, or no classes."""
        if self.labels.ndim > 1 or not len(self) or self.labels.min() < self.labels.max():
            return None
        return self.class_names[int(self.labels[0])]

    def subset(self, indices: NDArray[np.integer[Any]] | Sequence[int]) -> "LabelledData":
        """The examples at `indices` [M], in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        origins, sizes = (None if each is None else each[chosen] for each in (self.origins, self.sizes))
        images, labels = self.images[chosen], self.labels[chosen]
        return replace(self, images=images, labels=labels, origins=origins, sizes=sizes)

    def inputs(self) -> Inputs:
        """The network's input: float32 of the images' shape."""
        return preprocess(np.asarray(self.images), self.preprocessing)


def make_labelled_data(
    images: Pixels,
    labels: NDArray[Any],
    *,
    class_names: Sequence[str] = (),
    preprocessing: Preprocessing | None = None,
    other_parts: Sequence[Labels] = (),
    source: str = "",
) -> LabelledData:
    """Make `LabelledData`; unnamed classes are called by their numbers (`by_number`), floats are not scaled.

    images [N, ...], labels [N] of any integer type, floats [N, L], or boxes [N, M, 5]. The classes of the
    labels of `other_parts` of the same data count too. Raises `ConfigError` of the `source` if two
    classes have one name.
    """
    if len(set(class_names)) < len(class_names):
        twice = next(name for name in class_names if list(class_names).count(name) > 1)
        raise ConfigError(
            f"two classes are called '{twice}'", place=source, remedy="give each a name of its own"
        )
    labels, names = np.asarray(labels), tuple(class_names)
    labels = labels.astype(np.int64 if labels.ndim == 1 else np.float32)
    if not names and labels.ndim == 1:
        whole, names = by_number(np.concatenate([labels, *(part for part in other_parts if part.ndim == 1)]))
        labels = whole[: len(labels)]
    names = names or numbers(int(labels[:, :, 0].max()) + 1 if labels.ndim == 3 else labels.shape[1])
    if preprocessing is None:
        preprocessing = Preprocessing(scale=255.0 if images.dtype == np.uint8 else 1.0)
    if images.dtype != np.uint8:
        images = images.astype(np.float32, copy=False)
    boxes = {"resizing": Resizing(letterbox=True)} if labels.ndim == 3 else {}
    preprocessing = preprocessing.model_copy(update={"class_names": names, **boxes})
    return LabelledData(images, labels, names, preprocessing, named=bool(class_names))


def sample(data: LabelledData, count: int) -> LabelledData:
    """`count` examples drawn without replacement by a fixed seed; all if there are fewer."""
    chosen = np.random.default_rng(0).permutation(len(data))[:count]
    return data.subset(np.sort(chosen))


def scale_labels(labels: Labels, preprocessing: Preprocessing) -> Labels:
    """`(labels - target_mean) / target_std` [N, L] in float32; the labels themselves without statistics."""
    if not preprocessing.target_std:
        return labels
    mean, std = (np.asarray(v, np.float32) for v in (preprocessing.target_mean, preprocessing.target_std))
    return np.asarray((labels - mean) / std)


def in_units(outputs: NDArray[Any], preprocessing: Preprocessing) -> NDArray[Any]:
    """Outputs [N, L] in the units of the labels, the inverse of `scale_labels`."""
    if not preprocessing.target_std:
        return outputs
    mean, std = (np.asarray(v, np.float32) for v in (preprocessing.target_mean, preprocessing.target_std))
    return np.asarray(outputs * std + mean)


def preprocess(images: Pixels, preprocessing: Preprocessing) -> Inputs:
    """`(images / scale - mean) / std` per channel: [N, C, ...] to float32 of the same shape.

    Raises `ConfigError` if mean or std is neither one number nor one per channel.
    """
    channels = images.shape[1]
    for name, values in (("mean", preprocessing.mean), ("std", preprocessing.std)):
        if len(values) not in (1, channels):
            raise ConfigError(
                f"preprocessing has {len(values)} values for {name}, images have {channels} channels"
            )
    shape = (1, -1) + (1,) * (images.ndim - 2)
    mean = np.asarray(preprocessing.mean, dtype=np.float32).reshape(shape)
    std = np.asarray(preprocessing.std, dtype=np.float32).reshape(shape)
    inputs = images.astype(np.float32)
    inputs /= np.float32(preprocessing.scale)
    inputs -= mean
    inputs /= std
    return inputs


def raw_examples(inputs: Inputs, preprocessing: Preprocessing) -> Inputs:
    """The examples [N, C, ...] of which `preprocess` makes these inputs, but for rounding."""
    shape = (1, -1) + (1,) * (inputs.ndim - 2)
    mean, std = (
        np.asarray(each, np.float32).reshape(shape) for each in (preprocessing.mean, preprocessing.std)
    )
    return np.asarray((inputs * std + mean) * np.float32(preprocessing.scale))
