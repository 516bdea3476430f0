#!/usr/bin/env bash
# Guess: a grey TIFF that says WhiteIsZero (scanners, X-ray) comes out with white bright, whatever its depth: Pillow
# and OpenCV invert such a file of 8 bits.
# What happens: both invert 8 bits and neither inverts 16, so that the same scan in 16 bits is its own negative.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 numpy==2.4.6 tifffile==2026.3.3 opencv-python-headless==5.0.0.93
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np
import PIL
import tifffile
from PIL import Image

print("Pillow", PIL.__version__, "OpenCV", cv2.__version__)
inverted = {}
for kind in (np.uint8, np.uint16):
    most = np.iinfo(kind).max
    tifffile.imwrite("a.tif", np.zeros((4, 4), kind), photometric="miniswhite")  # all white
    read = {"Pillow": np.asarray(Image.open("a.tif")), "OpenCV": cv2.imread("a.tif", cv2.IMREAD_UNCHANGED)}
    for library, values in read.items():
        print(f"{np.dtype(kind).name}: white of WhiteIsZero is {values.flat[0]} of {most} in {library}")
        inverted[library, np.dtype(kind).name] = bool(values.flat[0] == most)
assert all(inverted[library, "uint8"] and not inverted[library, "uint16"] for library in ("Pillow", "OpenCV")), inverted
print("as described: 8 bits are inverted, 16 bits are not")
PYTHON
