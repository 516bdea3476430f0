#!/usr/bin/env bash
# Guess: OpenCV's NMSBoxesBatched, non-maximum suppression class by class, never drops a box because of one of another class.
# What happens: it moves the boxes of each class by the greatest coordinate plus 1 and suppresses all of them together. With
# coordinates below 0 (a bird's-eye view in metres around the vehicle, boxes that reach out of the picture) a box of one class
# is moved onto one of another, and is lost, however far apart they are. Moved by a constant to above 0, both are kept.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet opencv-python-headless==5.0.0.93 numpy==2.4.6
cat > try.py <<'PYTHON'
import cv2

CAR, PERSON = [30.0, 10.0, 4.0, 2.0], [-5.0, -25.0, 4.0, 2.0]  # x, y, width and height in metres


def kept(classes: list[int], shift: float) -> list[int]:
    boxes = [[x + shift, y + shift, width, height] for x, y, width, height in (CAR, PERSON)]
    return sorted(map(int, cv2.dnn.NMSBoxesBatched(boxes, [0.9, 0.8], classes, 0.1, 0.5)))


print("OpenCV", cv2.__version__)
seen = {}
for name, classes, shift in (("one class", [0, 0], 0), ("two classes", [0, 1], 0), ("two classes, moved", [0, 1], 50)):
    seen[name] = kept(classes, shift)
    print(f"car {CAR}, person {PERSON}, {name}: kept {seen[name]}")
assert seen == {"one class": [0, 1], "two classes": [0], "two classes, moved": [0, 1]}
PYTHON
venv/bin/python try.py
# Seen: one class: kept [0, 1]; two classes: kept [0]; two classes, moved: kept [0, 1]
