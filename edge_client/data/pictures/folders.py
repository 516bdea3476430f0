"""The source `folder:PATH?...`: folders of picture files, one for each class.

| option | meaning |
| --- | --- |
| `scale` | what becomes full brightness: `full` (default), `min-max`, or a factor (`picture_files`) |
| `side` | pixels of the longest side of a picture; larger pictures are shrunk to it (default 640) |
| `broken` | the largest share of files that may be broken (default 0.1) |
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from edge_client.data.class_folders import MAX_BROKEN, files_of_classes, parts_of, read_each, without_classes
from edge_client.data.classes import in_classes
from edge_client.data.dataset import LabelledData, Pixels, make_labelled_data
from edge_client.data.pictures import picture_files, units
from edge_client.data.pictures.scale import parsed_scale
from edge_client.data.said_once import say_once
from edge_client.data.shapes import SHRUNK_TO, redrawn, shrunk
from edge_client.data.source_options import number_option, options_of, whole_option
from schemas.errors import ConfigError, format_count
from schemas.values import PictureScale, Preprocessing

log = logging.getLogger(__name__)

OPTIONS = ("scale", "side", "broken")


@dataclass(frozen=True)
class PictureOptions:
    """How pictures become pixels, their longest side, and the largest share of files that may be broken."""

    scale: PictureScale | None
    side: int
    broken: float


def picture_options(text: str, *, source: str, scale: PictureScale | None = None) -> PictureOptions:
    """The options of a folder; without one the given scale. `ConfigError` for others."""
    options = options_of(text, OPTIONS, source=source)
    return PictureOptions(
        parsed_scale(options["scale"], source=source) if "scale" in options else scale,
        whole_option(options, "side", SHRUNK_TO, least=1, source=source),
        number_option(options, "broken", MAX_BROKEN, least=0, most=1, source=source),
    )


def read_folder(root: Path, text: str, *, split: str) -> tuple[LabelledData, bool]:
    """Read a folder with one sub-folder of pictures per class; returns whether it has its own test part.

    Pictures stay grey if all are grey; large ones are shrunk, those of an uncommon size resized. Raises
    `ConfigError` without classes, for a class without pictures, and if too many files are broken.
    """
    source = f"folder:{root}"
    options = picture_options(text, source=source)
    parts = parts_of(root, split)
    endings, remedies = picture_files.endings_read()
    classes = files_of_classes(parts.chosen, endings, remedies=remedies)
    if not classes:
        nothing = f"no image folder at {root}: expected one sub-folder of images per class"
        raise ConfigError(without_classes(parts.chosen, endings) or nothing)
    paths = [path for below in classes.values() for path in below]
    read = read_each(paths, partial(_read_small, options=options), source=source, most=options.broken)
    labels = np.repeat(np.arange(len(classes)), [len(below) for below in classes.values()])[read.places]
    for place, (name, files) in enumerate(classes.items()):
        if place not in labels:
            raise ConfigError(
                f"{format_count(len(files), 'file')} of class '{name}', all broken, the first is {files[0]}",
                place=source,
                remedy="repair them, or move the folder away",
            )
    say_notes(read.values, root, options.scale)
    data = make_labelled_data(
        _alike(read.values, root),
        labels,
        class_names=tuple(classes),
        preprocessing=Preprocessing(picture_scale=options.scale),
    )
    sizes = np.array([picture.pixels.shape[1:] for picture in read.values], np.int64)
    differ = (sizes != sizes[0]).any()
    data = replace(data, resizable=True, skipped=read.skipped, sizes=sizes if differ else None)
    return in_classes(data, parts.class_names), parts.official


def _read_small(file: Path, *, options: PictureOptions) -> picture_files.Picture:
    return shrink(picture_files.read_picture(file, scale=options.scale), options.side)


def shrink(picture: picture_files.Picture, side: int) -> picture_files.Picture:
    """A picture with this longest side if its own is longer."""
    pixels = shrunk(picture.pixels, side)
    if pixels is picture.pixels:
        return picture
    note = f"shrunk to {side} pixels on the longest side: ?side= states another length"
    return picture_files.Picture(pixels, (*picture.notes, note))


def say_notes(pictures: Sequence[picture_files.Picture], root: Path, scale: PictureScale | None) -> None:
    """Tell once what a user may not expect of these pictures."""
    for note, count in Counter(note for picture in pictures for note in picture.notes).items():
        say_once(f"{root}: {count} of {format_count(len(pictures), 'picture')} {note}")
    units.say_range([picture.pixels for picture in pictures], len(pictures), root, scale)


def _alike(pictures: Sequence[picture_files.Picture], root: Path) -> Pixels:
    """Pixels [N, C, H, W] of the most common size, grey if all are grey, else in three colours."""
    channels = 1 if all(len(picture.pixels) == 1 for picture in pictures) else 3
    (size, most), *others = Counter(picture.pixels.shape[1:] for picture in pictures).most_common()
    if others:
        height, width = size
        log.info(
            "%s: %d of %d pictures are not %dx%d like most: they are resized to it",
            *(root, len(pictures) - most, len(pictures), width, height),
        )
    return np.stack([redrawn(picture.pixels, (channels, *size)) for picture in pictures])
