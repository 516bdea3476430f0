"""What torchvision reads: its named data sets, and folders of image files. Nothing is downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from edge_client.data.arrays import channels_first
from edge_client.data.labelled import LabelledData, Pixels, labelled
from edge_client.torchvision_guard import torchvision_ready
from schemas.errors import ConfigError
from schemas.values import Preprocessing


@dataclass(frozen=True)
class NamedSet:
    """A data set of torchvision: its class, the mean and deviation of its training pixels, its oddities."""

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    first_label: int = 0
    lies_on_side: bool = False


NAMED_SETS: Mapping[str, NamedSet] = {
    "mnist": NamedSet("MNIST", (0.1307,), (0.3081,)),
    "fashionmnist": NamedSet("FashionMNIST", (0.2860,), (0.3530,)),
    "emnist": NamedSet(
        "EMNIST", (0.1722,), (0.3309,), {"split": "letters"}, first_label=1, lies_on_side=True
    ),
    "cifar10": NamedSet("CIFAR10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": NamedSet("CIFAR100", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def read_named(kind: str, *, data_root: Path | None, split: str) -> LabelledData:
    """Read one of `NAMED_SETS` below `data_root`; a missing one is a `ConfigError` that says what to do."""
    chosen = NAMED_SETS[kind]
    if data_root is None:
        raise ConfigError(f"data source {chosen.name} needs data-root, the folder that holds {chosen.name}")
    raw = _open(chosen, data_root, train=split == "train")
    images = channels_first(np.asarray(raw.data))
    if chosen.lies_on_side:
        images = np.ascontiguousarray(images.transpose(0, 1, 3, 2))
    return labelled(
        images,
        np.asarray(raw.targets) - chosen.first_label,
        class_names=[str(name) for name in raw.classes[chosen.first_label :]],
        preprocessing=Preprocessing(mean=chosen.mean, std=chosen.std),
    )


def _open(chosen: NamedSet, data_root: Path, *, train: bool) -> Any:
    torchvision_ready()
    from torchvision import datasets

    try:
        return getattr(datasets, chosen.name)(str(data_root), train=train, download=False, **chosen.options)
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"no {chosen.name} below {data_root}: put its unpacked files where torchvision looks for them, "
            f"or fetch it once with torchvision.datasets.{chosen.name}({str(data_root)!r}, download=True)"
        ) from error


def read_folder(root: Path, *, split: str) -> tuple[LabelledData, bool]:
    """Read a folder with one sub-folder of images per class; the flag tells whether it has its own test part.

    `root/train` and `root/test`, where both are there, are the parts. Grey images stay grey if all are.
    Raises `ConfigError` when there are no classes or images, and when two images differ in size.
    """
    official = (root / "train").is_dir() and (root / "test").is_dir()
    torchvision_ready()
    from torchvision.datasets import ImageFolder

    try:
        found = ImageFolder(str(root / split if official else root))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"no image folder at {root}: expected one sub-folder of images per class"
        ) from error
    paths = [Path(path) for path, _ in found.samples]
    labels = np.asarray([label for _, label in found.samples])
    return labelled(_read_all(paths), labels, class_names=found.classes), official


def _read_all(paths: list[Path]) -> Pixels:
    pictures = [_read(path) for path in paths]
    for path, picture in zip(paths, pictures, strict=True):
        if picture.size != pictures[0].size:
            raise ConfigError(
                f"images differ in size: {paths[0]} is {_size(pictures[0])}, {path} is {_size(picture)}; "
                "bring all to one size first"
            )
    mode = "L" if all(picture.mode in ("1", "L") for picture in pictures) else "RGB"
    pixels = np.stack([np.asarray(picture.convert(mode)) for picture in pictures])
    return pixels[:, None] if mode == "L" else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _read(path: Path) -> Image.Image:
    try:
        with Image.open(path) as picture:
            picture.load()
            return picture.copy()
    except (UnidentifiedImageError, OSError, ValueError) as error:
        raise ConfigError(f"cannot read image {path}: {error}") from error


def _size(picture: Image.Image) -> str:
    return f"{picture.width}x{picture.height}"
