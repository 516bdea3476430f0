"""Where data comes from: one name in the configuration, one `LabelledData`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Literal

import numpy as np

from edge_client.data.arrays import channels_first, examples_of, read_npz
from edge_client.data.labelled import LabelledData, labelled
from schemas.errors import ConfigError, nearest
from schemas.values import Preprocessing

Split = Literal["train", "test"]


@dataclass(frozen=True)
class SourceRequest:
    """What to read: the kind of source, what stands behind its colon, the data root, which part."""

    kind: str
    argument: str
    data_root: Path | None
    split: Split

    @property
    def path(self) -> Path:
        """The argument as a path: below the data root, if there is one and the path is relative."""
        path = Path(self.argument).expanduser()
        return path if self.data_root is None else self.data_root / path


def _digits(request: SourceRequest) -> LabelledData:
    with resources.as_file(resources.files("edge_client.data") / "digits.npz") as path:
        arrays = read_npz(path)
    preprocessing = Preprocessing(scale=16.0, mean=(0.3053,), std=(0.3760,))
    return split_off(labelled(arrays["images"], arrays["labels"], preprocessing=preprocessing), request.split)


def _npz(request: SourceRequest) -> LabelledData:
    arrays = read_npz(request.path)
    images, labels, official = examples_of(arrays, split=request.split, source=str(request.path))
    names = next((arrays[key] for key in ("class_names", "label_names") if key in arrays), np.empty(0))
    data = labelled(images, labels, class_names=[str(name) for name in names])
    return data if official else split_off(data, request.split)


def _python(request: SourceRequest) -> LabelledData:
    module, _, function = request.argument.partition(":")
    try:
        value = getattr(importlib.import_module(module), function)()
    except Exception as error:
        # The user's own code may fail in any way, and all of them are for the user to repair.
        raise ConfigError(f"data source python:{request.argument} failed: {error!r}") from error
    if isinstance(value, LabelledData):
        return split_off(value, request.split)
    try:
        images, labels = value
        data = labelled(channels_first(np.asarray(images)), np.asarray(labels))
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"data source python:{request.argument} returned {type(value).__name__}, "
            "expected (images, labels) or LabelledData"
        ) from error
    return split_off(data, request.split)


def _pictures(request: SourceRequest) -> LabelledData:
    # Imported here because it needs torchvision, which a board that only infers does not have.
    from edge_client.data import pictures

    if request.kind == "folder":
        data, official = pictures.read_folder(request.path, split=request.split)
        return data if official else split_off(data, request.split)
    return pictures.read_named(request.kind, data_root=request.data_root, split=request.split)


SOURCES: Mapping[str, tuple[Callable[[SourceRequest], LabelledData], str]] = {
    "digits": (_digits, ""),
    "mnist": (_pictures, ""),
    "fashionmnist": (_pictures, ""),
    "emnist": (_pictures, ""),
    "cifar10": (_pictures, ""),
    "cifar100": (_pictures, ""),
    "folder": (_pictures, "PATH"),
    "npz": (_npz, "PATH"),
    "python": (_python, "module:function"),
}
"""Each kind of source with what stands behind its colon."""


def load_source(source: str, *, data_root: Path | None = None, split: Split = "train") -> LabelledData:
    """Load `digits`, `MNIST`, `folder:PATH`, `npz:PATH`, `python:module:function`...; see `SOURCES`.

    Nothing is ever downloaded. Raises `ConfigError` for what is unknown, missing or not image data.
    """
    kind, _, argument = source.strip().partition(":")
    kind = kind.lower()
    if kind not in SOURCES:
        raise ConfigError(f"unknown data source {source!r}{nearest(kind, SOURCES)}")
    read, expected = SOURCES[kind]
    if bool(argument) != bool(expected):
        raise ConfigError(f"data source {source!r} is written {kind}{':' + expected if expected else ''}")
    return read(SourceRequest(kind, argument, data_root, split))


def split_off(data: LabelledData, split: Split) -> LabelledData:
    """The train (80%) or test (20%) part of data without an official split, always the same one.

    Every fifth example in label order is for testing, so that each class has its part in both.
    """
    order = np.random.default_rng(0).permutation(len(data))
    order = order[np.argsort(data.labels[order], kind="stable")]
    for_test = np.arange(len(order)) % 5 == 4
    return data.subset(np.sort(order[for_test if split == "test" else ~for_test]))
