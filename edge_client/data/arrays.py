"""Image arrays in `.npy` and `.npz` files, in any common axis order."""

import zipfile
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData, Labels, Pixels, labelled
from edge_client.data.said_once import say_once
from edge_client.data.shapes import fitted
from edge_client.data.validation import checked_images, checked_labels
from schemas.errors import ConfigError, nearest

_CHANNELS = (1, 3, 4)
_SPLIT_NAMES = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
_WHOLE_NAMES = ("images", "labels")


def channels_first(images: Pixels) -> Pixels:
    """Images as [N, C, H, W]; accepts [N, H, W] (grey), [N, H, W, C] and [N, C, H, W].

    Channels are last if only the last axis has 1, 3 or 4 entries. [N, H, W] are pictures if they are 8-bit or
    square; others may be signals [N, channels, samples] and are returned unchanged, for the network decides
    (`fitted`).
    """
    if images.ndim == 3 and (images.dtype == np.uint8 or images.shape[1] == images.shape[2] > 1):
        return images[:, None]
    if images.ndim == 4 and images.shape[-1] in _CHANNELS and images.shape[1] not in _CHANNELS:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def with_channels(images: Pixels, source: str) -> Pixels:
    """As `channels_first`; says once what examples [N, A, B] are taken for that are no bytes."""
    if images.ndim == 3 and images.dtype != np.uint8:
        _, rows, columns = images.shape
        what = f"signals of {rows} channels; pictures are saved as [N, 1, {rows}, {columns}], or as uint8"
        if rows == columns:
            what = f"grey pictures; for signals state [model] input-shape = [{rows}, {columns}]"
        say_once(f"{source}: examples of {rows}x{columns} are taken for {what}")
    return channels_first(images)


def as_batch(images: Pixels, shape: tuple[int, ...]) -> Pixels:
    """One example or many as [N, *shape]; an array that is neither is returned unchanged, to be refused."""
    single = fitted(images[None], shape)
    if single is not None:
        return single
    many = channels_first(images)
    found = fitted(many, shape) if many.ndim else None
    return many if found is None else found


def read_npy(path: Path) -> Pixels:
    """The array of a `.npy` file; `ConfigError` for another file, or one that needs unpickling."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path} as a numpy array", quoted=error) from error
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{path} holds several arrays: name it .npz")
    return array


def read_npz(path: Path) -> dict[str, Pixels]:
    """The arrays of an `.npz` file by name; `ConfigError` for another file, or one that needs unpickling."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path} as an .npz archive", quoted=error) from error


def examples_of(arrays: dict[str, Pixels], *, split: str, source: str) -> tuple[LabelledData, bool]:
    """The examples of an archive, and whether it has its own test part.

    Their classes are those of both parts. Raises `ConfigError` if neither `x_train y_train x_test y_test` nor
    `images labels` exist, and for arrays that are no examples (`validation`).
    """
    official = all(name in arrays for names in _SPLIT_NAMES.values() for name in names)
    parts = _SPLIT_NAMES if official else {split: _WHOLE_NAMES}
    missing = next((name for name in parts[split] if name not in arrays), None)
    if missing is not None:
        raise ConfigError(
            f"{source} has no array '{missing}'{nearest(missing, arrays)}: "
            "expected images and labels, or x_train, y_train, x_test and y_test"
        )
    images, _ = parts[split]
    pixels = with_channels(checked_images(arrays[images], f"{source}: array '{images}'"), source)
    labels = {name: _labels(arrays, *part, source=source) for name, part in parts.items()}
    names = _class_names(arrays)
    return labelled(pixels, labels[split], class_names=names, other_parts=tuple(labels.values())), official


def _labels(arrays: dict[str, Pixels], images: str, labels: str, *, source: str) -> Labels:
    where, count = f"{source}: array '{labels}'", len(arrays[images])
    return checked_labels(arrays[labels], where, images=count, class_names=_class_names(arrays))


def _class_names(arrays: dict[str, Pixels]) -> tuple[str, ...]:
    """The names of an archive's classes; empty if it has none."""
    found = next((arrays[key] for key in ("class_names", "label_names") if key in arrays), np.empty(0))
    return tuple(str(name) for name in found)
