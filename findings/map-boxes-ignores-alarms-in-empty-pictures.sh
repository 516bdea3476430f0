#!/usr/bin/env bash
# Guess: the average precision of map-boxes counts detections in pictures that have no object, as COCO's does, as long as
# `exclude_not_in_annotations` is False, its default: each is a false alarm.
# What happens: only pictures of the annotations are visited, whatever is said of the others. A detector that raises an alarm
# with a score of 0.99 in each of 90 empty pictures, and 0.9 for the objects of 10, has an average precision of 1; COCO's is
# 0.1. A row with the label "nan" for each empty picture makes it right.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet map-boxes==1.0.6 pandas==3.0.3 numpy==2.4.6 faster-coco-eval==1.8.0
cat > try.py <<'PYTHON'
from importlib.metadata import version

from faster_coco_eval import COCO, COCOeval_faster
from map_boxes import mean_average_precision_for_boxes

BOX = [0.25, 0.5, 0.25, 0.5]  # from x to x, from y to y
SEEN, EMPTY = [f"{number}" for number in range(10)], [f"{number}" for number in range(10, 100)]
objects = [[picture, "cat", *BOX] for picture in SEEN]
found = [[picture, "cat", 0.9, *BOX] for picture in SEEN]
alarms = [[picture, "cat", 0.99, *BOX] for picture in EMPTY]


def by_map_boxes(annotations: list, detections: list) -> float:
    return float(mean_average_precision_for_boxes(annotations, detections, 0.5, False, verbose=False)[0])


def by_coco(detections: list) -> float:
    """At an overlap of 0.5."""
    boxed = {"category_id": 1, "bbox": [25, 25, 25, 25]}
    truth = COCO(
        {
            "images": [{"id": int(picture), "width": 100, "height": 100} for picture in SEEN + EMPTY],
            "categories": [{"id": 1, "name": "cat"}],
            "annotations": [
                {"id": 1 + number, "image_id": int(row[0]), "area": 625, "iscrowd": 0, **boxed}
                for number, row in enumerate(objects)
            ],
        }
    )
    given = truth.loadRes([{"image_id": int(row[0]), "score": row[2], **boxed} for row in detections])
    scores = COCOeval_faster(truth, given, "bbox")
    scores.evaluate()
    scores.accumulate()
    return float(scores.eval["precision"][0, :, 0, 0, -1].mean())


seen = {
    "no alarm": (by_map_boxes(objects, found), by_coco(found)),
    "90 alarms": (by_map_boxes(objects, found + alarms), by_coco(found + alarms)),
}
named = by_map_boxes(objects + [[picture, "nan", 0, 0, 0, 0] for picture in EMPTY], found + alarms)
print("map-boxes", version("map-boxes"), "faster-coco-eval", version("faster-coco-eval"))
for name, (ours, coco) in seen.items():
    print(f"{name}: map-boxes {ours:.3f}, COCO {coco:.3f}")
print(f"90 alarms, with rows of empty pictures: map-boxes {named:.3f}")
assert min(seen["no alarm"]) > 0.99
assert seen["90 alarms"][0] == 1 and max(seen["90 alarms"][1], named) < 0.15
PYTHON
venv/bin/python try.py
# Seen: 90 alarms: map-boxes 1.000, COCO 0.100; with rows of empty pictures: map-boxes 0.100
