"""Labelled examples as a frozen value: raw pixels, labels, and the preprocessing of pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError
from schemas.values import Preprocessing

Pixels = NDArray[Any]
Inputs = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Examples before preprocessing.

    images [N, C, H, W], or [N, ...] of another kind, uint8 or float32; labels int64 [N] below the number of
    names; `ConfigError` otherwise. If `named` is false, the names are the labels' numbers. `resizable` images
    come from picture files.
    """

    images: Pixels
    labels: Labels
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    named: bool = True
    resizable: bool = False

    def __post_init__(self) -> None:
        count = len(self.images)
        if self.images.ndim < 2 or self.labels.shape != (count,):
            raise ConfigError(
                f"images {self.images.shape} and labels {self.labels.shape} are not [N, ...] and [N]"
            )
        if count and not 0 <= self.labels.min() <= self.labels.max() < self.num_classes:
            raise ConfigError(
                f"labels are {self.labels.min()} to {self.labels.max()}, "
                f"{self.num_classes} classes need 0 to {self.num_classes - 1}"
            )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example, [C, H, W] of an image."""
        return tuple(self.images.shape[1:])

    @property
    def num_classes(self) -> int:
        """Number of classes, including those without examples."""
        return len(self.class_names)

    def subset(self, indices: NDArray[np.integer[Any]] | Sequence[int]) -> "LabelledData":
        """The examples at `indices` [M], in that order."""
        chosen = np.asarray(indices, dtype=np.int64)
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])

    def inputs(self) -> Inputs:
        """The network's input: float32 of the images' shape."""
        return preprocess(self.images, self.preprocessing)


def labelled(
    images: Pixels,
    labels: NDArray[Any],
    *,
    class_names: Sequence[str] = (),
    preprocessing: Preprocessing | None = None,
) -> LabelledData:
    """Make `LabelledData`; unnamed classes are called by their numbers, floats are not scaled.

    images [N, ...], labels [N] of any integer type. Raises `ConfigError` if two classes have one name.
    """
    if len(set(class_names)) < len(class_names):
        twice = next(name for name in class_names if list(class_names).count(name) > 1)
        raise ConfigError(f"two classes are called '{twice}': give each a name of its own")
    labels = np.asarray(labels).astype(np.int64)
    names = tuple(class_names) or tuple(str(number) for number in range(int(labels.max(initial=0)) + 1))
    if preprocessing is None:
        preprocessing = Preprocessing(scale=255.0 if images.dtype == np.uint8 else 1.0)
    if images.dtype != np.uint8:
        images = images.astype(np.float32)
    preprocessing = preprocessing.model_copy(update={"class_names": names})
    return LabelledData(images, labels, names, preprocessing, named=bool(class_names))


def sample(data: LabelledData, count: int) -> LabelledData:
    """`count` examples drawn without replacement by a fixed seed; all if there are fewer."""
    chosen = np.random.default_rng(0).permutation(len(data))[:count]
    return data.subset(np.sort(chosen))


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
