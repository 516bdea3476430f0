"""The source `folder:PATH?...`: folders of picture files, one for each class.

| option | meaning |
| --- | --- |
| `scale` | what becomes full brightness: `full` (default), `min-max`, or a factor (`picture_files`) |
| `side` | pixels of the longest side of a picture; larger pictures are shrunk to it (default 640) |
| `broken` | the largest share of files that may be broken (default 0.1) |

`yolo:FOLDER`, `voc:FOLDER` and `coco:FILE` are pictures with boxes and have these options, too. Boxes are cut
at the edges of their pictures; those without area there are left out, as are those with numbers that are not
finite. A file that cannot be read is skipped with its picture, and counted.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from edge_client.data.class_folders import (
    MAX_BROKEN,
    files_of_classes,
    first_of,
    parts_of,
    read_each,
    without_classes,
)
from edge_client.data.classes import in_classes
from edge_client.data.dataset import LabelledData, Pixels, make_labelled_data
from edge_client.data.pictures import box_files, picture_files, units
from edge_client.data.pictures.scale import parsed_scale
from edge_client.data.said_once import say_once
from edge_client.data.shapes import SHRUNK_TO, on_canvas, redrawn, shrunk
from edge_client.data.source_options import number_option, options_of, whole_option
from edge_client.data.tasks.detection import BOX, NO_BOX
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
    if not root.is_dir():
        remedy = "name one with a sub-folder of pictures for each class"
        raise ConfigError("there is no such folder", place=source, remedy=remedy)
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
    _say_notes(read.values, root, options.scale)
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
    return _shrink(picture_files.read_picture(file, scale=options.scale), options.side)


def _shrink(picture: picture_files.Picture, side: int) -> picture_files.Picture:
    """A picture with this longest side if its own is longer."""
    pixels = shrunk(picture.pixels, side)
    if pixels is picture.pixels:
        return picture
    note = f"shrunk to {side} pixels on the longest side: ?side= states another length"
    return picture_files.Picture(pixels, (*picture.notes, note))


def _say_notes(pictures: Sequence[picture_files.Picture], root: Path, scale: PictureScale | None) -> None:
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


MAX_BEYOND = 2  # boxes of COCO that may reach beyond their pictures where all could be pairs of corners
MIN_SIDE = 1.0  # pixels of the shorter side of a box with area
LEFT_OUT = "without area in their pictures, or not finite"

READERS: Mapping[str, tuple[Callable[[Path, str], box_files.Annotations], str]] = {
    "yolo": (box_files.read_yolo, "images/NAME.jpg with labels/NAME.txt"),
    "voc": (box_files.read_voc, "JPEGImages/NAME.jpg with Annotations/NAME.xml"),
    "coco": (box_files.read_coco, "pictures beside the file, or in a folder there"),
}
"""Each kind's reader, and what it expects."""


@dataclass(frozen=True, eq=False)
class _BoxPicture:
    """A picture and its boxes (class, corners), with the places of those that were cut and left out.

    `size` are the height and width in its file, `stated` the boxes there.
    """

    picture: picture_files.Picture
    size: tuple[int, int]
    stated: box_files.Rows
    boxes: box_files.Rows
    cut: Sequence[str]
    left_out: Sequence[str]


@dataclass(frozen=True, eq=False)
class BoxPictures:
    """Pictures with boxes [N, M, 5], their files, and the heights and widths there.

    `official` if the source has a test part of its own.
    """

    data: LabelledData
    official: bool
    files: Sequence[Path]
    sizes: Sequence[tuple[int, int]]


def read_boxes(kind: str, path: Path, text: str, *, split: str) -> BoxPictures:
    """Read pictures with boxes, which lie at the top left of a canvas of the largest height and width.

    Raises `ConfigError` without pictures or boxes, and if too many files are broken.
    """
    (reader, expected), source = READERS[kind], f"{kind}:{path}"
    options = picture_options(text, source=source)
    if not path.exists():
        raise ConfigError("there is no such file or folder", place=source, remedy=f"expected {expected}")
    found = reader(path, split)
    own = {each.picture: each for each in found.pictures}
    if not own:
        raise ConfigError("there are no pictures with boxes", place=source, remedy=f"expected {expected}")
    files = tuple(own)
    read = read_each(files, lambda file: _read(own[file], options), source=source, most=options.broken)
    labels = _rows_of([each.boxes for each in read.values])
    if (labels[:, :, 0] == NO_BOX).all():
        if unusable := [place for each in read.values for place in each.left_out]:
            count = format_count(len(unusable), "box")
            raise ConfigError(
                f"all of {count} {LEFT_OUT}; the first: {unusable[0]}",
                place=source,
                remedy="numbers of YOLO are shares of the picture, those of VOC and COCO are pixels",
            )
        raise ConfigError("no picture has a box", place=source, remedy=f"expected {expected}")
    if kind == "coco":
        _check_sizes(read.values, source)
    pictures = [each.picture for each in read.values]
    _say(read.values, sum(not each.has_file for each in found.pictures), source)
    _say_notes(pictures, path, options.scale)
    images, sizes = on_canvas([picture.pixels for picture in pictures])
    about = Preprocessing(picture_scale=options.scale)
    data = make_labelled_data(
        images, labels, class_names=found.class_names, preprocessing=about, source=source
    )
    data = replace(data, resizable=True, skipped=read.skipped, sizes=sizes, named=found.named)
    return BoxPictures(
        data, found.official, [files[place] for place in read.places], [each.size for each in read.values]
    )


def _read(annotated: box_files.Annotated, options: PictureOptions) -> _BoxPicture:
    """A picture, shrunk as the options say, and its boxes in it."""
    whole = picture_files.read_picture(annotated.picture, scale=options.scale)
    height, width = whole.pixels.shape[1:]
    rows, places = annotated.read((height, width))
    corners = np.clip(rows[:, 1:], 0, [width, height] * 2)
    has_area = (corners[:, 2:] - corners[:, :2] >= MIN_SIDE).all(1) & np.isfinite(rows).all(1)
    is_cut = has_area & (abs(corners - rows[:, 1:]) > MIN_SIDE).any(1)
    small = _shrink(whole, options.side)
    factors = np.divide(small.pixels.shape[:0:-1], (width, height))
    boxes = np.column_stack([rows[:, 0], corners * np.tile(factors, 2)])[has_area]
    cut, left_out = ([places[at] for at in np.flatnonzero(chosen).tolist()] for chosen in (is_cut, ~has_area))
    return _BoxPicture(small, (height, width), rows, boxes, cut, left_out)


def _check_sizes(pictures: Sequence[_BoxPicture], source: str) -> None:
    """Raise `ConfigError` where widths and heights are corners: as these all boxes are in their pictures."""
    corners = np.concatenate([each.stated[:, 1:] for each in pictures])
    edges = np.concatenate([np.tile(each.size[::-1], (len(each.stated), 1)) for each in pictures]) + MIN_SIDE
    second = corners[:, 2:] - corners[:, :2]
    beyond = np.count_nonzero((corners[:, 2:] > edges).any(1))
    if beyond > MAX_BEYOND and ((corners[:, :2] < second) & (second <= edges)).all():
        raise ConfigError(
            f"{beyond} of {format_count(len(corners), 'box')} reach beyond their pictures, and all fit as "
            "corners [x1, y1, x2, y2]",
            place=source,
            remedy="write bbox as [x, y, width, height]",
        )


def _rows_of(boxes: Sequence[box_files.Rows]) -> box_files.Rows:
    """The boxes of all pictures [N, M, 5], with rows that are none where a picture has fewer than others."""
    labels = np.zeros((len(boxes), max(1, *map(len, boxes)), BOX))
    labels[:, :, 0] = NO_BOX
    for rows, own in zip(labels, boxes, strict=True):
        rows[: len(own)] = own
    return labels


def _say(pictures: Sequence[_BoxPicture], without_file: int, source: str) -> None:
    """Tell once how many boxes there are, and which are not as they stand in the files."""
    count = sum(len(each.boxes) for each in pictures)
    alone = f", {without_file} without a file of boxes" if without_file else ""
    said = format_count(len(pictures), "picture")
    say_once(f"{source}: {format_count(count, 'box')} in {said}{alone}")
    for what, places in (
        (f"left out: {LEFT_OUT}", [p for e in pictures for p in e.left_out]),
        ("cut at the edges of their pictures", [p for e in pictures for p in e.cut]),
    ):
        if places:
            said = f"{source}: {format_count(len(places), 'box')} {what}; the first: {first_of(places)}"
            say_once(said, logging.WARNING)
