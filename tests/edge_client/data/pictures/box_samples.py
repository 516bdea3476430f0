"""Two pictures with boxes, and one without, as every tool exports them."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ("cat", "dog")
SIZES = {"a": (60, 40), "b": (60, 40), "c": (60, 40)}  # width, height
BOXES = {"a": [(0, 5, 10, 25, 30), (1, 15, 5, 55, 35)], "b": [(1, 0, 0, 30, 15)], "c": []}


def write_pictures(kind: str, root: Path) -> None:
    """Write pictures and boxes below `root`."""
    WRITERS[kind](root)


def source_of(kind: str, root: Path) -> Path:
    """What stands behind the colon of the source."""
    return root / "annotations.json" if kind == "coco" else root


def pictures_in(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (width, height) in SIZES.items():
        pixels = np.random.default_rng([*name.encode()]).integers(0, 256, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{name}.jpg")


def yolo_lines(name: str) -> str:
    """Centres and sides in shares of the picture, a box in each line."""
    width, height = SIZES[name]
    lines = [
        f"{n} {(x + right) / 2 / width} {(y + low) / 2 / height} {(right - x) / width} {(low - y) / height}\n"
        for n, x, y, right, low in BOXES[name]
    ]
    return "".join(lines)


def voc_text(name: str) -> str:
    objects = (
        f"<object><name>{NAMES[n]}</name><bndbox><xmin>{x}</xmin><ymin>{y}</ymin><xmax>{right}</xmax>"
        f"<ymax>{low}</ymax></bndbox></object>"
        for n, x, y, right, low in BOXES[name]
    )
    return "\n".join(("<annotation>", *objects, "</annotation>"))


def coco_value(files: Mapping[int, str] | None = None) -> dict[str, list[dict[str, object]]]:
    """COCO's tables for these files of pictures by their places in `BOXES`, or for those of `pictures_in`."""
    files = files or {place: f"{name}.jpg" for place, name in enumerate(BOXES)}
    boxes = [(place, box) for place, own in enumerate(BOXES.values()) if place in files for box in own]
    return {
        "images": [{"id": place, "file_name": name} for place, name in files.items()],
        "categories": [{"id": 3, "name": "animal"}, {"id": 7, "name": "cat"}, {"id": 9, "name": "dog"}],
        "annotations": [
            {"image_id": place, "category_id": (7, 9)[n], "bbox": [x, y, right - x, low - y]}
            for place, (n, x, y, right, low) in boxes
        ],
    }


def _write_yolo(root: Path) -> None:
    pictures_in(root / "images")
    (root / "labels").mkdir()
    (root / "data.yaml").write_text("nc: 2\nnames: ['cat', \"dog\"]\n")
    for name in ("a", "b"):
        (root / "labels" / f"{name}.txt").write_text(yolo_lines(name))


def _write_voc(root: Path) -> None:
    pictures_in(root / "JPEGImages")
    (root / "Annotations").mkdir()
    for name in BOXES:
        (root / "Annotations" / f"{name}.xml").write_text(voc_text(name))


def _write_coco(root: Path) -> None:
    pictures_in(root / "images")
    (root / "annotations.json").write_text(json.dumps(coco_value()))


def write_broken(kind: str, root: Path) -> str:
    """Write pictures whose files of boxes are none; returns what is said of the first."""
    write_pictures(kind, root)
    file, said = BROKEN[kind]
    for path in (root / file).parent.glob(f"*{Path(file).suffix}"):
        path.write_text("x")
    return f"{root / file}{said}"


BROKEN = {
    "yolo": ("labels/a.txt", ":1: not all are numbers: write a class"),
    "voc": ("Annotations/a.xml", ":1: it is not XML: export it again"),
    "coco": ("annotations.json", ": it is no COCO file: export it again"),
}


WRITERS = {"yolo": _write_yolo, "voc": _write_voc, "coco": _write_coco}


EXPORTS = {
    "label studio yolo": """yolo:
        classes.txt <- cat|dog
        notes.json <- {"categories": []}
        images/3f2a-a.jpg <- a
        labels/3f2a-a.txt <- a
        images/9c1e-b.jpg <- b
        labels/9c1e-b.txt <- b""",
    "label studio coco": r"""coco:result.json
        result.json <- images\3f2a-a.jpg images/9c1e-b.jpg
        images/3f2a-a.jpg <- a
        images/9c1e-b.jpg <- b""",
    "label studio voc": """voc:
        images/3f2a-a.jpg <- a
        Annotations/3f2a-a.xml <- a
        images/9c1e-b.jpg <- b
        Annotations/9c1e-b.xml <- b""",
    "cvat yolo": """yolo:
        obj.data <- classes = 2|train = data/train.txt|names = data/obj.names|backup = backup/
        obj.names <- cat|dog
        train.txt <- data/obj_train_data/a.jpg|data/obj_train_data/b.jpg
        obj_train_data/a.jpg <- a
        obj_train_data/a.txt <- a
        obj_train_data/b.jpg <- b
        obj_train_data/b.txt <- b""",
    "cvat ultralytics": """yolo:
        data.yaml <- names:|  0: cat|  1: dog|path: .|train: train.txt
        train.txt <- data/images/train/a.jpg|data/images/train/b.jpg
        images/train/a.jpg <- a
        labels/train/a.txt <- a
        images/train/b.jpg <- b
        labels/train/b.txt <- b""",
    "cvat coco": """coco:annotations/instances_default.json
        annotations/instances_default.json <- a.jpg b.jpg
        images/default/a.jpg <- a
        images/default/b.jpg <- b""",
    "cvat coco of several folders": """coco:
        annotations/instances_train.json <- door/1.jpg gate/1.jpg
        images/train/door/1.jpg <- a
        images/train/gate/1.jpg <- b
        images/test/door/1.jpg <- c
        images/test/gate/1.jpg <- c""",
    "cvat voc": """voc:
        labelmap.txt <- # label:color_rgb:parts:actions|cat:1,2,3::|dog:4,5,6::
        ImageSets/Main/default.txt <- "my a"|b
        JPEGImages/my a.jpg <- a
        Annotations/my a.xml <- a
        JPEGImages/b.jpg <- b
        Annotations/b.xml <- b""",
    "cvat voc of several folders": """voc:
        ImageSets/Main/default.txt <- door/1|gate/1
        JPEGImages/door/1.jpg <- a
        Annotations/door/1.xml <- a
        JPEGImages/gate/1.jpg <- b
        Annotations/gate/1.xml <- b""",
    "roboflow darknet": """yolo:
        train/_darknet.labels <- cat|dog
        train/a_jpg.rf.7.jpg <- a
        train/a_jpg.rf.7.txt <- a
        train/b_jpg.rf.8.jpg <- b
        train/b_jpg.rf.8.txt <- b""",
}
"""What tools write for the pictures a and b: a source and its files, each with its lines.

A picture's name alone stands for the picture, or for its boxes; COCO's files have the paths of a and b.
"""

PARTS = {
    "roboflow yolo": """yolo:
        data.yaml <- train: ../train/images|val: ../valid/images|test: ../test/images|names:|- cat|- dog|nc: 2
        train/images/b_jpg.rf.8.jpg <- b
        train/labels/b_jpg.rf.8.txt <- b
        valid/images/a_jpg.rf.7.jpg <- a
        valid/labels/a_jpg.rf.7.txt <- a""",
    "roboflow coco": """coco:
        train/_annotations.coco.json <- - b.jpg
        train/b.jpg <- b
        valid/_annotations.coco.json <- a.jpg -
        valid/a.jpg <- a""",
    "roboflow voc": """voc:
        train/b_jpg.rf.8.jpg <- b
        train/b_jpg.rf.8.xml <- b
        valid/a_jpg.rf.7.jpg <- a
        valid/a_jpg.rf.7.xml <- a""",
    "ultralytics": """yolo:
        data.yaml <- path: ../pets|train: images/train2017|val: 'images/val2017'|test: # none|names: [cat,dog]
        images/train2017/b.jpg <- b
        labels/train2017/b.txt <- b
        images/val2017/a.jpg <- a
        labels/val2017/a.txt <- a""",
    "cvat yolo": """yolo:
        obj.data <- classes = 2|train = data/train.txt|valid = data/valid.txt
        obj.names <- cat|dog
        train.txt <- data/obj_train_data/1.jpg
        valid.txt <- data/obj_valid_data/1.jpg
        obj_train_data/1.jpg <- b
        obj_train_data/1.txt <- b
        obj_valid_data/1.jpg <- a
        obj_valid_data/1.txt <- a""",
    "cvat voc": """voc:
        ImageSets/Main/train.txt <- b
        ImageSets/Main/val.txt <- a
        JPEGImages/b.jpg <- b
        Annotations/b.xml <- b
        JPEGImages/a.jpg <- a
        Annotations/a.xml <- a""",
}
"""What tools write of the picture b for training and of a for testing."""


def write_export(export: str, root: Path) -> str:
    """Write the files of an export below `root`; returns its source."""
    source, *lines = export.splitlines()
    pictures_in(root / "pictures")
    for line in lines:
        name, _, text = line.strip().partition(" <- ")
        (path := root / "export" / name).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jpg":
            shutil.copy(root / "pictures" / f"{text}.jpg", path)
        elif text in BOXES and path.parts[-2] != "Main":
            path.write_text(yolo_lines(text) if path.suffix == ".txt" else voc_text(text))
        elif path.suffix == ".json" and ".jpg" in text:
            files = {place: each for place, each in enumerate(text.split(" ")) if each != "-"}
            path.write_text(json.dumps(coco_value(files)))
        else:
            path.write_text(text.replace("|", "\n") + "\n")
    kind, _, place = source.partition(":")
    return f"{kind}:{root / 'export' / place}"
