"""Arrays and datasets of a program as a data source: an `.npz` file, which every process can read."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from schemas.errors import ConfigError


def data_source(data: Any, test_data: Any, folder: Path) -> str:
    """The source that holds these examples; equal ones are written into `folder` once.

    Each is `(x, y)`, or a sequence of such pairs, as a torch Dataset is. Raises `ConfigError` for others.
    """
    if isinstance(data, str):
        if test_data is not None:
            raise ConfigError("test_data: goes with arrays in data; a source has its test part (data.md)")
        return data
    if test_data is None:
        arrays = _arrays(data, "data", "images", "labels")
    else:
        arrays = {
            **_arrays(data, "data", "x_train", "y_train"),
            **_arrays(test_data, "test_data", "x_test", "y_test"),
        }
    arrays = _with_numbers(arrays)
    path = folder.resolve() / f"data-{_digest(arrays)}.npz"
    if not path.exists():
        _write(path, arrays)
    return f"npz:{path}"


def _arrays(data: Any, what: str, images: str, labels: str) -> dict[str, NDArray[Any]]:
    if isinstance(data, LabelledData):
        raise ConfigError(f"{what}: pass (data.images, data.labels), or the name of the source")
    try:
        pair = data if isinstance(data, (tuple, list)) and len(data) == 2 else _stacked(data)
        x, y = map(_array, pair)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise ConfigError(f"{what}: pass (x, y), or a dataset of such pairs: {error}") from error
    if x.dtype == object:
        raise ConfigError(f"{what}: the examples are no numbers of one shape")
    return {images: x, labels: y}


def _stacked(data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """The examples of a sequence of pairs; a torch Dataset need not end by itself."""
    examples, labels = zip(*(data[place] for place in range(len(data))), strict=True)
    return np.stack([_array(example) for example in examples]), np.stack([_array(label) for label in labels])


def _array(value: Any) -> NDArray[Any]:
    """An array of numpy; a tensor may be on another device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def _with_numbers(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Labels that are words become places in `class_names`, as a source needs them."""
    words = {name: array.astype(str) for name, array in arrays.items() if array.dtype.kind in "OUS"}
    if not words:
        return dict(arrays)
    names = np.unique(np.concatenate(list(words.values())))
    numbers = {name: np.searchsorted(names, array) for name, array in words.items()}
    return {**arrays, **numbers, "class_names": names}


def _digest(arrays: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    part = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(part, **arrays)  # type: ignore[arg-type]
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"data: {path} cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
