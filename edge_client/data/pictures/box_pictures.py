"""The sources `yolo:FOLDER?...`, `voc:FOLDER?...` and `coco:FILE?...`: pictures with boxes.

They have the options of `folder:`. Boxes are cut at the edges of their pictures; those without area there are
left out, as are those with numbers that are not finite. A file that cannot be read is skipped with its
picture, and counted.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge_client.data.class_folders import read_each
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.pictures import box_files, folders, picture_files
from edge_client.data.said_once import say_once
from edge_client.data.shapes import on_canvas
from edge_client.data.tasks.detection import BOX, NO_BOX
from schemas.errors import ConfigError, format_count
from schemas.values import Preprocessing

MIN_SIDE = 1.0  # pixels of the shorter side of a box with area

READERS: Mapping[str, tuple[Callable[[Path, str], box_files.Annotations], str]] = {
    "yolo": (box_files.read_yolo, "images/NAME.jpg with labels/NAME.txt"),
    "voc": (box_files.read_voc, "JPEGImages/NAME.jpg with Annotations/NAME.xml"),
    "coco": (box_files.read_coco, "pictures beside the file, or in a folder there"),
}
"""Each kind's reader, and what it expects."""


@dataclass(frozen=True, eq=False)
class _BoxPicture:
    """A picture and its boxes (class, corners), with the places of those that were cut and left out."""

    picture: picture_files.Picture
    boxes: box_files.Rows
    cut: Sequence[str]
    left_out: Sequence[str]


def read_boxes(kind: str, path: Path, text: str, *, split: str) -> tuple[LabelledData, bool]:
    """Read pictures with boxes [N, M, 5]; returns whether the source has its own test part.

    Pictures lie at the top left of a canvas of the largest height and width. Raises `ConfigError` without
    pictures or boxes, and if too many files are broken.
    """
    (reader, expected), source = READERS[kind], f"{kind}:{path}"
    options = folders.picture_options(text, source=source)
    found = reader(path, split) if path.exists() else box_files.Annotations((), ())
    own = {each.picture: each for each in found.pictures}
    if not own:
        raise ConfigError("there are no pictures with boxes", place=source, remedy=f"expected {expected}")
    read = read_each(
        tuple(own), lambda picture: _read(own[picture], options), source=source, most=options.broken
    )
    labels = _rows_of([each.boxes for each in read.values])
    if (labels[:, :, 0] == NO_BOX).all():
        raise ConfigError("no picture has a box", place=source, remedy=f"expected {expected}")
    pictures = [each.picture for each in read.values]
    _say(read.values, sum(not each.has_file for each in found.pictures), source)
    folders.say_notes(pictures, path, options.scale)
    images, sizes = on_canvas([picture.pixels for picture in pictures])
    about = Preprocessing(picture_scale=options.scale)
    data = make_labelled_data(images, labels, class_names=found.class_names, preprocessing=about)
    data = replace(data, resizable=True, skipped=read.skipped, sizes=sizes, named=found.named)
    return data, found.official


def _read(annotated: box_files.Annotated, options: folders.PictureOptions) -> _BoxPicture:
    """A picture, shrunk as the options say, and its boxes in it."""
    whole = picture_files.read_picture(annotated.picture, scale=options.scale)
    height, width = whole.pixels.shape[1:]
    rows, places = annotated.read((height, width))
    corners = np.clip(rows[:, 1:], 0, [width, height] * 2)
    has_area = (corners[:, 2:] - corners[:, :2] >= MIN_SIDE).all(1) & np.isfinite(rows).all(1)
    is_cut = has_area & (abs(corners - rows[:, 1:]) > MIN_SIDE).any(1)
    small = folders.shrink(whole, options.side)
    factors = np.divide(small.pixels.shape[:0:-1], (width, height))
    boxes = np.column_stack([rows[:, 0], corners * np.tile(factors, 2)])[has_area]
    cut, left_out = ([places[at] for at in np.flatnonzero(chosen).tolist()] for chosen in (is_cut, ~has_area))
    return _BoxPicture(small, boxes, cut, left_out)


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
        (
            "left out: without area in their pictures, or not finite",
            [p for e in pictures for p in e.left_out],
        ),
        ("cut at the edges of their pictures", [p for e in pictures for p in e.cut]),
    ):
        if places:
            said = f"{source}: {format_count(len(places), 'box')} {what}; the first: {places[0]}"
            say_once(said, logging.WARNING)
