"""Image arrays as people save them: any common axis order, `.npy` and `.npz` files."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from edge_client.data.labelled import Labels, Pixels
from schemas.errors import ConfigError, nearest

_CHANNELS = (1, 3, 4)
_SPLIT_NAMES = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
_WHOLE_NAMES = ("images", "labels")


def channels_first(images: Pixels) -> Pixels:
    """Return images as [N, C, H, W]; takes [N, H, W] (grey), [N, H, W, C] and [N, C, H, W].

    Channels are last where only the last axis has 1, 3 or 4 entries.
    """
    if images.ndim == 3:
        return images[:, None]
    if images.ndim == 4 and images.shape[-1] in _CHANNELS and images.shape[1] not in _CHANNELS:
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def read_npy(path: Path) -> Pixels:
    """The array of a `.npy` file; raises `ConfigError` when it is none or would need unpickling."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path} as a numpy array: {error}") from error
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"{path} holds several arrays: name it .npz")
    return array


def read_npz(path: Path) -> dict[str, Pixels]:
    """The arrays of an `.npz` file by name; raises `ConfigError` when it is none or would need unpickling."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"cannot read {path} as an .npz archive: {error}") from error


def examples_of(arrays: dict[str, Pixels], *, split: str, source: str) -> tuple[Pixels, Labels, bool]:
    """Find images [N, C, H, W] and labels [N] of an archive; the flag tells whether it has its own test part.

    Raises `ConfigError` when neither `x_train y_train x_test y_test` nor `images labels` are there.
    """
    official = all(name in arrays for names in _SPLIT_NAMES.values() for name in names)
    images, labels = _SPLIT_NAMES[split] if official else _WHOLE_NAMES
    missing = next((name for name in (images, labels) if name not in arrays), None)
    if missing is not None:
        raise ConfigError(
            f"{source} has no array '{missing}'{nearest(missing, arrays)}: "
            "expected images and labels, or x_train, y_train, x_test and y_test"
        )
    return channels_first(arrays[images]), arrays[labels].reshape(-1).astype(np.int64), official
