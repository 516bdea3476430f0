"""Validation of images and labels before they become examples.

Every error is a `ConfigError` that names file, array, value and remedy.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import Labels, Pixels
from edge_client.data.tasks.detection import BOX, NO_BOX
from schemas.errors import ConfigError, format_count

MAX_CLASSES = 100_000  # more are a mistake: each is an output of the model and a name in its file
_AT_ONCE = 1024
_NUMBERS = "biuf"


def checked_images(images: NDArray[Any], where: str) -> Pixels:
    """Images [N, ...]: numbers, finite in float32, N at least 1; messages call the array `where`."""
    if images.dtype.kind not in _NUMBERS:
        raise ConfigError(
            f"{where} holds {images.dtype}, not numbers", remedy="save pixels as uint8 or float32"
        )
    if images.ndim < 2:
        raise ConfigError(
            f"{where} has the shape {images.shape}", remedy="expected one image after the other, [N, ...]"
        )
    if 0 in images.shape:
        raise ConfigError(f"{where} is empty, its shape is {images.shape}: there is nothing to learn from")
    if images.dtype.kind == "f":
        _check_finite(images, where)
    return images


def checked_labels(
    labels: NDArray[Any], where: str, *, images: int, class_names: Sequence[str] = ()
) -> Labels:
    """Labels of as many images.

    Whole numbers from 0 [N], below the number of names if there are names, as int64 [N], and -1 and 1
    without names; measured numbers [N], or several numbers per image [N, L], as float32 [N, L]; boxes
    [N, M, 5] (`tasks.detection`) as float32.
    """
    if labels.ndim > 1 and labels.size == images:
        labels = labels.reshape(-1)
    if labels.ndim not in (1, 2) and labels.shape[2:] != (BOX,):
        raise ConfigError(
            f"{where} has the shape {labels.shape}",
            remedy="expected one class number per image [N], several numbers [N, L], or boxes [N, M, 5]",
        )
    if len(labels) != images:
        raise ConfigError(
            f"{where} holds {format_count(len(labels), 'label')} of {format_count(images, 'image')}",
            remedy="expected one for each",
        )
    if labels.dtype.kind not in _NUMBERS:
        raise ConfigError(
            f"{where}[0] is not a number: labels are class numbers from 0; the classes' names go into "
            "class_names, in the order of the numbers",
            quoted=repr(str(labels[0])),
        )
    if labels.ndim == 3:
        return _boxes(labels.astype(np.float32), where, class_names)
    is_bipolar = labels.ndim == 1 and (labels == -1).any() and (np.abs(labels) == 1).all()
    if not class_names and is_bipolar:
        return labels.astype(np.int64)
    has_fractions = labels.dtype.kind == "f" and ((labels != np.floor(labels)) | (labels < 0)).any()
    if labels.ndim == 2 or has_fractions:
        return _numbers(labels, where, class_names)
    start = "class numbers start at 0: leave such examples out, or renumber the classes"
    _refuse(labels < 0, labels, where, start)
    if count := len(class_names):
        end = f"the {count} class names are those of the labels 0 to {count - 1}"
        _refuse(labels >= count, labels, where, end)
    _refuse(labels >= MAX_CLASSES, labels, where, f"at most {MAX_CLASSES} classes: number them from 0")
    return labels.astype(np.int64)


def _boxes(labels: Labels, where: str, names: Sequence[str]) -> Labels:
    """Boxes [N, M, 5] that are finite, of whole class numbers, and with area, if they are boxes at all."""
    classes, corners, most = labels[:, :, 0], labels[:, :, 1:], (len(names) or MAX_CLASSES) - 1
    is_class = (classes == np.floor(classes)) & (classes >= NO_BOX) & (classes <= most)
    has_area = np.isfinite(corners).all(2) & (corners[:, :, 2:] > corners[:, :, :2]).all(2)
    for place in np.argwhere(~is_class | ~(has_area | (classes == NO_BOX)))[:1].tolist():
        raise ConfigError(
            f"{where}{place} is no box: expected (class, x1, y1, x2, y2) with a class of 0 to {most}, "
            f"x1 < x2 and y1 < y2 in pixels, or the class {NO_BOX}"
        )
    return labels


def _numbers(labels: NDArray[Any], where: str, names: Sequence[str]) -> Labels:
    found: Labels = labels.astype(np.float32).reshape(len(labels), -1)
    if names and found.shape[1] != len(names):
        raise ConfigError(
            f"{where} has {format_count(found.shape[1], 'number')} per image and "
            f"{format_count(len(names), 'name')}",
            remedy="expected as many",
        )
    for place in np.argwhere(~np.isfinite(found))[:1]:
        raise ConfigError(
            f"{where}{place.tolist()} is {found[tuple(place)]}: labels are finite numbers",
            remedy="leave such examples out",
        )
    return found


def _refuse(wrong: NDArray[np.bool_], labels: NDArray[Any], where: str, why: str) -> None:
    if wrong.any():
        place = int(np.argmax(wrong))
        raise ConfigError(f"{where}[{place}] is {labels[place]}: {why}")


def _check_finite(images: Pixels, where: str) -> None:
    for begin in range(0, len(images), _AT_ONCE):
        with np.errstate(over="ignore"):
            part = images[begin : begin + _AT_ONCE].astype(np.float32, copy=False)
        finite = np.isfinite(part).reshape(len(part), -1)
        if not finite.all():
            place = int(np.argmin(finite.all(axis=1)))
            value = images[begin + place].reshape(-1)[int(np.argmin(finite[place]))]
            raise ConfigError(
                f"{where}[{begin + place}] holds {value}: pixels are finite numbers of float32",
                remedy="repair the image or leave it out",
            )
