"""Two pictures with boxes, and one without, as every tool exports them."""

import json
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
        pixels = np.random.default_rng(len(name)).integers(0, 256, (height, width, 3), np.uint8)
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
    return f"<annotation>\n{''.join(objects)}\n</annotation>"


def coco_value() -> dict[str, list[dict[str, object]]]:
    boxes = [(place, box) for place, name in enumerate(BOXES) for box in BOXES[name]]
    return {
        "images": [{"id": place, "file_name": f"{name}.jpg"} for place, name in enumerate(BOXES)],
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


WRITERS = {"yolo": _write_yolo, "voc": _write_voc, "coco": _write_coco}
