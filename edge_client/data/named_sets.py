"""Named data sets in torchvision's folders. Nothing is downloaded.

torchvision, which takes 80 MB of memory and torch, is imported only for sets without IDX files.
"""

import string
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.data.arrays import channels_first
from edge_client.data.dataset import LabelledData, Pixels, make_labelled_data
from schemas.errors import ConfigError
from schemas.values import Preprocessing


@dataclass(frozen=True)
class NamedSet:
    """A data set of torchvision: its class, mean and deviation of its training pixels, its peculiarities.

    `files` are the prefixes of its IDX files' names by split; `classes` are the names, which IDX files lack.
    """

    name: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    first_label: int = 0
    lies_on_side: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    classes: tuple[str, ...] = ()


_MNIST = {"train": "train", "test": "t10k"}
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)


NAMED_SETS: Mapping[str, NamedSet] = {
    "mnist": NamedSet(
        "MNIST",
        (0.1307,),
        (0.3081,),
        files=_MNIST,
        classes=tuple(f"{number} - {name}" for number, name in enumerate(_DIGITS)),
    ),
    "fashionmnist": NamedSet("FashionMNIST", (0.2860,), (0.3530,), files=_MNIST, classes=_CLOTHES),
    "emnist": NamedSet(
        "EMNIST",
        (0.1722,),
        (0.3309,),
        {"split": "letters"},
        first_label=1,
        lies_on_side=True,
        files={"train": "emnist-letters-train", "test": "emnist-letters-test"},
        classes=("N/A", *string.ascii_lowercase),
    ),
    "cifar10": NamedSet("CIFAR10", (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": NamedSet("CIFAR100", (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}


def read_named(kind: str, *, data_root: Path | None, split: str) -> LabelledData:
    """Read one of `NAMED_SETS` from `data_root`; `ConfigError` with a remedy if it is missing."""
    chosen = NAMED_SETS[kind]
    if data_root is None:
        raise ConfigError(f"data source {chosen.name} needs data-root, the folder that holds {chosen.name}")
    files = [
        data_root / chosen.name / "raw" / f"{chosen.files.get(split)}-{what}-ubyte"
        for what in ("images-idx3", "labels-idx1")
    ]
    if all(path.is_file() for path in files):
        pixels, targets = (map_idx(path) for path in files)
        classes: Sequence[str] = chosen.classes
    else:
        raw = _open(chosen, data_root, train=split == "train")
        pixels, targets, classes = np.asarray(raw.data), np.asarray(raw.targets), raw.classes
    images = channels_first(pixels)
    if chosen.lies_on_side:
        images = np.ascontiguousarray(images.transpose(0, 1, 3, 2))
    return make_labelled_data(
        images,
        targets.astype(np.int64) - chosen.first_label,
        class_names=[str(name) for name in classes[chosen.first_label :]],
        preprocessing=Preprocessing(mean=chosen.mean, std=chosen.std),
    )


def _open(chosen: NamedSet, data_root: Path, *, train: bool) -> Any:
    from torchvision import datasets

    words = ", ".join([repr(str(data_root)), *(f"{key}={value!r}" for key, value in chosen.options.items())])
    try:
        return getattr(datasets, chosen.name)(str(data_root), train=train, download=False, **chosen.options)
    except (RuntimeError, OSError) as error:
        raise ConfigError(
            f"no {chosen.name} below {data_root}",
            remedy="put its unpacked files where torchvision looks for them, or fetch it once with "
            f"torchvision.datasets.{chosen.name}({words}, download=True)",
        ) from error


_UNSIGNED_BYTES = 8


def map_idx(path: Path) -> Pixels:
    """The bytes of an IDX file as a read-only array; `ConfigError` for another file."""
    with path.open("rb") as file:
        zeros, kind, axes = struct.unpack(">HBB", file.read(4).ljust(4, b"\xff"))
        header = file.read(4 * axes)
    if zeros or kind != _UNSIGNED_BYTES or len(header) != 4 * axes:
        raise ConfigError(f"{path} is not an IDX file of bytes", remedy="unpack it, or fetch it again")
    shape = struct.unpack(f">{axes}I", header)
    if path.stat().st_size < 4 + len(header) + int(np.prod(shape, dtype=np.int64)):
        raise ConfigError(f"{path} is cut off", remedy="fetch it again")
    mapped = np.memmap(path, np.uint8, "r", offset=4 + len(header), shape=shape) if all(shape) else None
    return np.zeros(shape, np.uint8) if mapped is None else np.asarray(mapped)
