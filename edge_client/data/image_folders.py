"""Folders of image files, read with Pillow only."""

import logging
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from edge_client.data.classes import in_classes, in_order
from edge_client.data.dataset import LabelledData, Pixels, labelled
from edge_client.data.shapes import resize
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

ENDINGS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Endings of image files, in lower case."""


def read_folder(root: Path, *, split: str) -> tuple[LabelledData, bool]:
    """Read a folder with one sub-folder of images per class; returns whether it has its own test part.

    `root/train` and `root/test`, if both exist, are the parts. Images stay grey if all are grey; images of an
    uncommon size are resized. Raises `ConfigError` without classes or images.
    """
    official = has_parts(root)
    found = pictures_of_classes(root / split if official else root)
    if not any(found.values()):
        raise ConfigError(f"no image folder at {root}: expected one sub-folder of images per class")
    empty = [name for name, paths in found.items() if not paths]
    if empty:
        raise ConfigError(
            f"no images in {root / empty[0]}: expected files such as .png or .jpg, or no folder"
        )
    labels = np.repeat(np.arange(len(found)), [len(paths) for paths in found.values()])
    pixels = _read_all([path for paths in found.values() for path in paths], root)
    data = replace(labelled(pixels, labels, class_names=tuple(found)), resizable=True)
    return in_classes(data, _classes_below(root, official=official)), official


def has_parts(root: Path) -> bool:
    """Whether a folder has its own train and test part."""
    return (root / "train").is_dir() and (root / "test").is_dir()


def pictures_of_classes(root: Path) -> dict[str, list[Path]]:
    """The image files below each sub-folder, in a fixed order; empty without sub-folders."""
    if not root.is_dir():
        return {}
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    return {folder.name: pictures_below(folder) for folder in folders}


def pictures_below(folder: Path) -> list[Path]:
    """All image files of a folder and its sub-folders, by folder and name."""
    return [
        Path(place) / name
        for place, _, names in sorted(os.walk(folder, followlinks=True))
        for name in sorted(names)
        if name.lower().endswith(ENDINGS)
    ]


def _classes_below(root: Path, *, official: bool) -> tuple[str, ...]:
    """The names of the sub-folders; either part may lack classes."""
    parts = [root / "train", root / "test"] if official else [root]
    return in_order(path.name for part in parts for path in part.iterdir() if path.is_dir())


def _read_all(paths: list[Path], root: Path) -> Pixels:
    pictures = [_read(path) for path in paths]
    mode = "L" if all(picture.mode in ("1", "L") for picture in pictures) else "RGB"
    (size, most), *others = Counter(picture.size for picture in pictures).most_common()
    if others:
        width, height = size
        log.info(
            "%s: %d of %d pictures are not %dx%d like most: they are resized to it",
            *(root, len(pictures) - most, len(pictures), width, height),
        )
    pixels = np.stack([np.asarray(_of_size(picture.convert(mode), size)) for picture in pictures])
    return pixels[:, None] if mode == "L" else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))


def _of_size(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    return picture if picture.size == size else resize(picture, *size)


def _read(path: Path) -> Image.Image:
    """The picture, rotated as its camera recorded."""
    try:
        with Image.open(path) as picture:
            return ImageOps.exif_transpose(picture)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError) as error:
        raise ConfigError(f"cannot read image {path}: {error}") from error
