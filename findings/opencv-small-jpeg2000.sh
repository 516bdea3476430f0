#!/usr/bin/env bash
# Guess: `cv2.imwrite("x.jp2", picture)` writes a picture of any size, as it does for PNG, TIFF or WebP, and raises
# where it cannot.
# What happens: with a side below 32 pixels a stump of 77 bytes without a picture stays behind and the call returns
# False without raising: the encoder always asks for six resolutions. Thermal and depth cameras of 8x8, 16x12 or
# 24x32 pixels are below it; whoever does not look at the return value loses every picture.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check opencv-python-headless==4.12.0.88
venv/bin/python - 2>/dev/null <<'PY'
import pathlib

import cv2
import numpy

print("opencv", cv2.__version__)
seen = {}
for height, width in ((8, 8), (12, 16), (24, 32), (31, 64), (32, 32), (62, 80)):
    picture = numpy.full((height, width), 1000, numpy.uint16)
    path = pathlib.Path(f"{height}x{width}.jp2")
    seen[height, width] = cv2.imwrite(str(path), picture)
    size = path.stat().st_size if path.exists() else "no file"
    print(f"{height}x{width}: returned {seen[height, width]}, {size}; PNG: {cv2.imwrite('x.png', picture)}")
assert all(is_written == (min(size) >= 32) for size, is_written in seen.items())
PY
