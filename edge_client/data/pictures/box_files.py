"""Boxes of pictures as annotation tools export them: YOLO's text files, VOC's XML and COCO's JSON.

Each gives pictures with rows (class, x1, y1, x2, y2) in pixels, and the names of all classes. Numbers are
taken as they stand: whether boxes lie in their pictures is judged where the pictures are read. VOC's corners
are not shifted by its first pixel of 1, as the tools that write them today count from 0.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from edge_client.data.class_folders import files_below, parts_of
from edge_client.data.classes import Names, in_order
from edge_client.data.pictures.picture_files import endings_read
from edge_client.data.said_once import say_once
from edge_client.data.validation import MAX_CLASSES
from schemas.errors import ConfigError, format_count

Rows = NDArray[np.float64]
Places = Sequence[str]  # of each row, for messages: `labels/a.txt:3`
Size = tuple[int, int]
LINE = "write a class number and x, y, width and height, or the corners of a polygon"
PART_FILES = ("data.yaml", "dataset.yaml", "obj.data")  # of YOLO: which pictures are for what
NAME_FILES = (
    *("data.yaml", "dataset.yaml", "classes.txt", "obj.names", "labels/classes.txt"),
    *("_darknet.labels", "train/_darknet.labels"),
)
"""The names of YOLO's classes are in the first of these."""


@dataclass(frozen=True)
class Annotated:
    """A picture and the reader of its boxes, which takes its height and width; `has_file` if any says them.

    The reader raises `ConfigError` with file and line for what is no annotation.
    """

    picture: Path
    read: Callable[[Size], tuple[Rows, Places]]
    has_file: bool = True


@dataclass(frozen=True)
class Annotations:
    """The pictures of one part with the names of all classes; `official` if there is a test part."""

    pictures: Sequence[Annotated]
    class_names: Names
    official: bool = False
    named: bool = True


def read_yolo(root: Path, split: str) -> Annotations:
    """Pictures with text files beside them, or in folders `labels` where theirs are `images`.

    Names are in a YAML file or one of `NAME_FILES`; without any, classes are numbers.
    """
    pictures, official = _yolo_pictures(root, split)
    named = next((path for path in (root / name for name in NAME_FILES) if path.is_file()), None)
    names = _yolo_names(named) if named else ()
    found = list[Annotated]()
    for path in pictures:
        file = _labels_beside(path)
        found.append(Annotated(path, partial(_yolo_rows, file, names, named), file.exists()))
    if found and not names:
        say_once(
            f"yolo:{root}: no file names the classes, so they are numbers: write their names into "
            "classes.txt, one in a line",
            logging.WARNING,
        )
    return Annotations(found, names or _numbered(root), official, named=bool(names))


def _yolo_pictures(root: Path, split: str) -> tuple[Sequence[Path], bool]:
    """The pictures of a part by folders, or else as `PART_FILES` say; and whether there is a test part."""
    images = root / "images"
    parts = parts_of(images if images.is_dir() else root, split)
    every = pictures_below(parts.chosen)
    training, testing = (
        _stated_pictures(root, every, keys) for keys in (("train",), ("test", "val", "valid"))
    )
    if parts.official or not training or not testing or training == testing:
        return every, parts.official
    return testing if split == "test" else training, True


def _stated_pictures(root: Path, every: Sequence[Path], keys: Sequence[str]) -> Sequence[Path]:
    """Those of all pictures that the first such key names: those of a folder, or of a list of files.

    Tools write paths of where they ran (`../train/images`, `data/train.txt`), so ends of paths count.
    """
    texts = [_text(path) for path in (root / name for name in PART_FILES) if path.is_file()]
    stated = {key: value.strip("\"'") for text in texts for key, value in _ENTRY.findall(text)}
    value = next((stated[key] for key in keys if key in stated), "")
    parts = [part for part in PurePosixPath(value).parts if part not in ("..", "/")]
    ends = (root.joinpath(*parts[start:]) for start in range(len(parts)))
    place = next((end for end in ends if end.exists()), None)
    if place is None or place.is_dir():
        return [path for path in every if place and path.is_relative_to(place)]
    find, lines = finder({path: path for path in every}), _text(place).splitlines()
    return [path for line in lines if (path := find(line.strip())) is not None]


_ENTRY = re.compile(r"^(train|val|valid|test)[ \t]*[:=][ \t]*([^\s#\[]+)", re.M)


def _labels_beside(picture: Path) -> Path:
    """The label file of a picture; of a path with `images` it is below `labels` unless it lies beside."""
    beside = picture.with_suffix(".txt")
    parts = picture.parts
    if beside.exists() or "images" not in parts:
        return beside
    last = len(parts) - 1 - parts[::-1].index("images")
    return Path(*parts[:last], "labels", *parts[last + 1 :]).with_suffix(".txt")


def _yolo_names(path: Path) -> Names:
    if path.suffix == ".yaml":
        return _names_of_yaml(path)
    return tuple(line.strip() for line in _text(path).splitlines() if line.strip())


_NAMES = re.compile(r"^names:[ \t]*[\[{]([^\]}]*)|^names:[^\n]*\n((?:[ \t]*(?:-|\d+:)[^\n]*\n?)+)", re.M)
_NAME = re.compile(r"^\s*(?:-\s|(\d+)\s*:)?\s*(.*?)(?:\s#.*)?\s*$")  # `- ring`, `0: ring`, `ring  # round`


def _names_of_yaml(path: Path) -> Names:
    """The list or table `names` of a data set's YAML file, which no reader of YAML is needed for."""
    inline, block = match.groups("") if (match := _NAMES.search(_text(path))) else ("", "")
    entries = filter(str.strip, (*inline.split(","), *block.splitlines()))
    found = [pair for entry in entries for pair in _NAME.findall(entry)]
    names = {int(number or place): name.strip("\"'") for place, (number, name) in enumerate(found)}
    if not found or sorted(names) != [*range(len(found))]:
        why = "its names are not numbered from 0 in turn" if found else "it has no list of names"
        raise ConfigError(why, place=path, remedy="write the classes into classes.txt, one in a line")
    return tuple(names[number] for number in range(len(names)))


def _numbered(root: Path) -> Names:
    """The numbers of classes without names in all parts, of which a broken file has none."""
    greatest = -1
    for path in pictures_below(root):
        try:
            rows, _ = _yolo_rows(_labels_beside(path), (), None, (1, 1))
        except ConfigError:
            continue
        greatest = max(greatest, int(rows[:, 0].max(initial=-1)))
    return tuple(map(str, range(greatest + 1)))


def _yolo_rows(path: Path, names: Names, named: Path | None, size: Size) -> tuple[Rows, Places]:
    """Rows of a class with centre and sides, or with the corners of a polygon, in shares of the picture."""
    rows, places, (height, width) = list[list[float]](), list[str](), size
    for number, line in enumerate(_text(path).splitlines() if path.exists() else (), 1):
        if not (words := line.split()):
            continue
        place = f"{path}:{number}"
        try:
            own, *values = map(float, words)
        except ValueError as error:
            raise ConfigError("not all are numbers", place=place, remedy=LINE, quoted=line) from error
        if len(values) != 4 and (len(values) < 6 or len(values) % 2):
            raise ConfigError(f"it has {format_count(len(words), 'number')}", place=place, remedy=LINE)
        rows.append([_class_number(own, names, named, place), *_corners(values, width, height)])
        places.append(place)
    return _as_rows(rows), places


def _corners(values: Sequence[float], width: int, height: int) -> list[float]:
    if len(values) == 4:
        x, y, across, down = values
        shares = [x - across / 2, y - down / 2, x + across / 2, y + down / 2]
    else:
        shares = [min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])]
    return [share * side for share, side in zip(shares, (width, height) * 2, strict=True)]


def _class_number(number: float, names: Names, named: Path | None, place: str) -> float:
    count = len(names) or MAX_CLASSES
    if 0 <= number < count and number.is_integer():
        return number
    raise ConfigError(
        f"the class {number:g} must be 0 to {count - 1}",
        place=place,
        remedy=f"correct it, or name the class in {named}" if named else "number classes from 0",
    )


def read_voc(root: Path, split: str) -> Annotations:
    """Pictures with XML files of the same names, by the lists of `ImageSets/Main` if there are some."""
    lists, parts = root / "ImageSets" / "Main", parts_of(root, split)
    listed = {path.stem: path for path in sorted(lists.glob("*.txt"))}
    training = listed.get("trainval") or listed.get("train")
    testing = listed.get("test") or (listed.get("val") if training and training.stem == "train" else None)
    official = (training is not None and testing is not None) or parts.official
    every = files_below(root, {".xml"}).paths
    names = in_order(name for path in every for name in _voc_names(path))
    index = {name: place for place, name in enumerate(names)}
    chosen = testing if official and split == "test" else training
    below = root if chosen else parts.chosen
    xmls = {path.with_suffix(""): path for path in every if path.is_relative_to(below)}
    pictures = {path.with_suffix(""): path for path in pictures_below(below)}
    # CVAT puts names with spaces into quotes.
    lines = _text(chosen).splitlines() if chosen else map(str, xmls)
    find_xml, find_picture = finder(xmls), finder(pictures)
    found = [
        Annotated(
            find_picture(stem) or root / "JPEGImages" / f"{stem}.jpg",
            partial(_voc_rows, find_xml(stem) or root / "Annotations" / f"{stem}.xml", index),
        )
        for stem in (line.strip().strip('"') for line in lines)
        if stem
    ]
    return Annotations(found, names, official)


def _voc_objects(path: Path) -> list[tuple[str, Mapping[str, str]]]:
    """The objects of a file: the place of each, with its `name` and the text of its corners."""
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate()
    parser.StartElementHandler = lambda tag, _: builder.start(tag, {"line": str(parser.CurrentLineNumber)})
    parser.EndElementHandler, parser.CharacterDataHandler = builder.end, builder.data
    try:
        parser.Parse(path.read_bytes(), True)
    # The last two are of an encoding that is unknown or not read, such as GB2312.
    except (OSError, expat.ExpatError, LookupError, ValueError) as error:
        line = getattr(error, "lineno", 1)
        why, remedy = "it is not XML", "export it again, in UTF-8"
        raise ConfigError(why, place=f"{path}:{line}", remedy=remedy, quoted=error) from error
    return [
        (
            f"{path}:{each.get('line')}",
            {part.tag: (part.text or "").strip() for part in (*each, *each.findall("bndbox/*"))},
        )
        for each in builder.close().findall("object")
    ]


def _voc_names(path: Path) -> list[str]:
    try:
        return [each["name"] for _, each in _voc_objects(path) if each.get("name")]
    except ConfigError:
        # It is counted when its boxes are read.
        return []


def _voc_rows(path: Path, index: Mapping[str, int], size: Size) -> tuple[Rows, Places]:
    rows, places = list[list[float]](), list[str]()
    for place, each in _voc_objects(path):
        try:
            rows.append(
                [index[each["name"]], *(float(each[key]) for key in ("xmin", "ymin", "xmax", "ymax"))]
            )
        except (KeyError, ValueError) as error:
            why, remedy = "it has no name, or no corners", "write name, xmin, ymin, xmax and ymax"
            raise ConfigError(why, place=place, remedy=remedy, quoted=error) from error
        places.append(place)
    return _as_rows(rows), places


def read_coco(path: Path, split: str) -> Annotations:
    """Pictures of a JSON file, beside it or in a folder there; groups (`iscrowd`) are left out.

    A folder has one such file, or one in each of its parts.
    """
    if path.is_dir():
        parts = parts_of(path, split)
        documents = files_below(parts.chosen, {".json"}).paths
        if len(documents) != 1:
            count = format_count(len(documents), "JSON file")
            raise ConfigError(f"it has {count}", place=parts.chosen, remedy="name one: coco:FILE.json")
        return replace(read_coco(documents[0], split), official=parts.official)
    try:
        known: Any = json.loads(_text(path))
        categories, images = (
            [*dict.fromkeys((each["id"], str(each[name])) for each in known[key])]
            for key, name in (("categories", "name"), ("images", "file_name"))
        )
        names, files = dict(categories), dict(images)
        if len(names) < len(categories) or len(files) < len(images):
            why, remedy = "two of its images or categories have one id", "give each an id of its own"
            raise ConfigError(why, place=path, remedy=remedy)
        boxes: dict[Any, list[tuple[int, Any, Any]]] = {each: [] for each in files}
        for place, each in enumerate(known["annotations"]):
            if each["image_id"] not in files:
                raise ConfigError(
                    "its image_id is that of no image of the file",
                    place=f"{path}: annotations[{place}]",
                    remedy="add the image, or remove the annotation",
                    quoted=each["image_id"],
                )
            if not each.get("iscrowd"):
                boxes[each["image_id"]].append((place, each["category_id"], each["bbox"]))
        # Roboflow states a category above all others, which no box has.
        used = {category for own in boxes.values() for _, category, _ in own}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            "it is no COCO file",
            place=path,
            remedy="export it again, with images, annotations and categories",
            quoted=error,
        ) from error
    index = {each: place for place, each in enumerate(each for each in names if each in used)}
    root = path.parent.parent if path.parent.name == "annotations" else path.parent
    find = finder({each: each for each in pictures_below(root)})
    # `instances_train.json` is of `images/train`, where the file does not say so.
    part = path.stem.removeprefix("instances_")
    by_file = dict[str, list[tuple[int, Any, Any]]]()
    for each, name in files.items():
        by_file.setdefault(name, []).extend(boxes[each])
    found = [
        Annotated(find(f"{part}/{name}") or path.parent / name, partial(_coco_rows, path, own, index))
        for name, own in by_file.items()
    ]
    return Annotations(found, tuple(names[each] for each in index))


def _coco_rows(
    path: Path, own: Sequence[tuple[int, Any, Any]], index: Mapping[Any, int], size: Size
) -> tuple[Rows, Places]:
    rows, places = list[list[float]](), list[str]()
    for number, category, box in own:
        place = f"{path}: annotations[{number}]"
        try:
            x, y, width, height = map(float, box)
            rows.append([index[category], x, y, x + width, y + height])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(
                "it has no known category, or no bbox",
                place=place,
                remedy="write category_id, and bbox as [x, y, width, height]",
                quoted=error,
            ) from error
        places.append(place)
    return _as_rows(rows), places


def finder(files: Mapping[Path, Path]) -> Callable[[str], Path | None]:
    """Finds the file that a path of another machine names: of those with its name, the longest common end.

    Keys are what is compared, such as files without endings. None if no file has the name.
    """
    by_name = dict[str, list[Path]]()
    for key in files:
        by_name.setdefault(key.name, []).append(key)

    def find(text: str) -> Path | None:
        parts = PurePosixPath(text.replace("\\", "/")).parts[::-1]
        alike = by_name.get(parts[0], []) if parts else []
        return files[max(alike, key=lambda key: _common(key.parts[::-1], parts))] if alike else None

    return find


def _common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many first entries are equal."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def pictures_below(folder: Path) -> Sequence[Path]:
    """The picture files of a folder and its sub-folders."""
    return files_below(folder, endings_read()[0]).paths


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        remedy = "save it in UTF-8, readable for this user"
        raise ConfigError("it cannot be read as text", place=path, remedy=remedy, quoted=error) from error


def _as_rows(rows: Sequence[Sequence[float]]) -> Rows:
    return np.array(rows, np.float64).reshape(-1, 5)
