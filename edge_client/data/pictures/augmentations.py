"""Random changes of pictures in training, which move their boxes with them: no epoch sees the same again.

Each takes pictures [N, C, H, W], before their preprocessing, and a generator, and gives others of that shape.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, Pixels
from edge_client.data.tasks.detection import NO_BOX
from schemas.strategy import Mirror

STREAM = 5  # of the plan's seed, from which changes are drawn
ZOOM = 1.5  # by how much a picture is magnified, or shrunk, at most
JITTER = 0.2  # by how much more or less colourful, contrasty and bright a picture becomes, as a share
SEEN = 0.25  # share of a box that must stay in the picture
MIRRORS: Mapping[Mirror, tuple[int, int]] = {"left-right": (-1, 1), "up-down": (1, -1)}  # signs of x and y
Random = np.random.Generator
Augmentation = Callable[[LabelledData, Random], LabelledData]


def augment(data: LabelledData, names: Sequence[str], seed: int, step: int) -> LabelledData:
    """The examples of a training's step, changed by these augmentations one after the other."""
    random = np.random.default_rng((seed, STREAM, step))
    data = replace(data, images=np.asarray(data.images))
    for name in names:
        data = AUGMENTATIONS[name](data, random)
    return data


def mirrored(data: LabelledData, axes: Sequence[Mirror]) -> LabelledData:
    """The examples and, after them, their mirror images; with two axes those along both, too."""
    for axis in dict.fromkeys(axes):
        right, down = MIRRORS[axis]
        images, count = np.asarray(data.images), len(data)
        signs, sides = np.array([right, down]), np.array(data.input_shape[:0:-1])
        turned = _moved(data, np.tile(signs, (count, 1)), np.tile((signs < 0) * sides, (count, 1)))
        data = replace(
            data,
            images=np.concatenate([images, images[..., ::down, ::right]]),
            labels=np.concatenate([data.labels, turned.labels]),
            origins=None,
            sizes=None,
        )
    return data


def _flip(data: LabelledData, random: Random) -> LabelledData:
    """Half of the pictures are mirrored, left for right."""
    places = np.arange(len(data)) + len(data) * (random.random(len(data)) < 0.5)
    return mirrored(data, ("left-right",)).subset(places)


def _scale(data: LabelledData, random: Random) -> LabelledData:
    """Each picture is magnified or shrunk, and moved as far as that leaves room."""
    zooms = ZOOM ** random.uniform(-1, 1, len(data))
    sides = np.array(data.input_shape[:0:-1])
    offsets = random.random((len(data), 2)) * (1 - zooms[:, None]) * sides
    images = np.empty_like(data.images)
    for place, (picture, zoom, (right, down)) in enumerate(zip(data.images, zooms, offsets, strict=True)):
        rows = _resampled(picture, zoom, down, axis=1)
        images[place] = _in_type(_resampled(rows, zoom, right, axis=2), images.dtype)
    return replace(_moved(data, np.stack([zooms, zooms], 1), offsets), images=images)


def _resampled(picture: Pixels, zoom: float, offset: float, *, axis: int) -> NDArray[np.float32]:
    """The picture [C, H, W] at `position * zoom + offset` on an axis: linear in between, black outside."""
    count = picture.shape[axis]
    places = (np.arange(count) + 0.5 - offset) / zoom - 0.5
    low = np.floor(places).astype(np.int64)
    shape = [count if each == axis else 1 for each in range(3)]
    share = (places - low).astype(np.float32).reshape(shape)
    inside = ((places > -0.5) & (places < count - 0.5)).reshape(shape)
    first, second = (np.take(picture, np.clip(at, 0, count - 1), axis) for at in (low, low + 1))
    return np.asarray((first * (1 - share) + second * share) * inside, np.float32)


def _colour(data: LabelledData, random: Random) -> LabelledData:
    """Each picture gets another saturation, contrast and brightness."""
    saturation, contrast, brightness = random.uniform(1 - JITTER, 1 + JITTER, (3, len(data), 1, 1, 1))
    images = data.images.astype(np.float32)
    for factor, axes in ((saturation, (1,)), (contrast, (1, 2, 3))):
        mean = images.mean(axes, keepdims=True)
        images = mean + (images - mean) * factor.astype(np.float32)
    return replace(data, images=_in_type(images * brightness.astype(np.float32), data.images.dtype))


def _mosaic(data: LabelledData, random: Random) -> LabelledData:
    """Half of the pictures with boxes become four of the batch, each at half its size."""
    count, (height, width) = len(data), data.input_shape[1:]
    others = np.concatenate([np.arange(count)[None], random.integers(count, size=(3, count))])
    chosen = random.random(count) < 0.5
    rows, columns = height // 2, width // 2
    pairs = data.images[:, :, : 2 * rows, : 2 * columns].reshape(count, -1, rows, 2, columns, 2)
    small = _in_type(pairs.mean((3, 5), dtype=np.float32), data.images.dtype)
    images, labels = data.images.copy(), list[NDArray[Any]]()
    for corner, places in enumerate(others):
        down, right = corner // 2 * (height - rows), corner % 2 * (width - columns)
        images[chosen, :, down : down + rows, right : right + columns] = small[places][chosen]
        part = replace(data, labels=data.labels[places])
        labels.append(_moved(part, np.full((count, 2), 0.5), np.tile((right, down), (count, 1))).labels)
    joined = np.concatenate(labels, 1)
    kept = np.zeros_like(joined)
    kept[:, :, 0] = NO_BOX
    kept[:, : data.labels.shape[1]] = data.labels
    return replace(data, images=images, labels=np.where(chosen[:, None, None], joined, kept))


def _in_type(images: NDArray[np.float32], kind: np.dtype[Any]) -> Pixels:
    return np.clip(np.rint(images), 0, 255).astype(kind) if kind == np.uint8 else images.astype(kind)


def _moved(data: LabelledData, zooms: NDArray[Any], offsets: NDArray[Any]) -> LabelledData:
    """The pictures with boxes at `position * zoom + offset` (x, y of each [N, 2]), cut at their edges.

    Boxes of which too little stays inside are gone.
    """
    if not data.has_boxes:
        return data
    labels = data.labels.copy()
    ends = labels[:, :, 1:].reshape(*labels.shape[:2], 2, 2) * zooms[:, None, None] + offsets[:, None, None]
    ends = np.sort(ends, 2)
    inside = np.clip(ends, 0, data.input_shape[:0:-1])
    shares = [np.diff(each, axis=2).prod((2, 3)) for each in (inside, ends)]
    is_seen = shares[0] > SEEN * shares[1]
    labels[:, :, 1:] = np.where(is_seen[..., None], inside.reshape(*labels.shape[:2], 4), 0)
    labels[:, :, 0] = np.where(is_seen, labels[:, :, 0], NO_BOX)
    return replace(data, labels=labels)


AUGMENTATIONS: Mapping[str, Augmentation] = {
    "flip": _flip,
    "scale": _scale,
    "colour": _colour,
    "mosaic": _mosaic,
}
