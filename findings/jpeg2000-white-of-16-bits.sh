#!/usr/bin/env bash
# Guess: Pillow reads JPEG 2000 of 16 bits per colour as 8 bits, by the high byte or rounded: white stays 255.
# What happens: it rounds without a bound, so that every colour from 65408 on becomes 0: white turns black. The same
# file in grey is read with all its 16 bits, and OpenCV reads both rightly.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 numpy==2.4.6 opencv-python-headless==5.0.0.93
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np
import PIL
from PIL import Image

print("Pillow", PIL.__version__, "OpenCV", cv2.__version__)
lossless = [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000]
read = {}
for value in (65280, 65407, 65408, 65535):
    for name, shape in (("grey", (64, 64)), ("colour", (64, 64, 3))):
        assert cv2.imwrite("a.jp2", np.full(shape, value, np.uint16), lossless)
        assert (cv2.imread("a.jp2", cv2.IMREAD_UNCHANGED) == value).all()
        read[name, value] = int(np.asarray(Image.open("a.jp2")).flat[0])
        print(f"{name} {value}: Pillow reads {read[name, value]}")
assert all(read["grey", value] == value for value in (65280, 65407, 65408, 65535)), read
assert [read["colour", value] for value in (65280, 65407, 65408, 65535)] == [255, 255, 0, 0], read
print("as described: near-white colours of 16 bits become 0")
PYTHON
