#!/usr/bin/env bash
# Guess: Pillow reads a TIFF of floats or of whole numbers with a sign alike, whether it is big-endian or not, and
# whether it is compressed or not.
# What happens: uncompressed it does. If a big-endian file ("MM") is compressed, libtiff already gives numbers in the
# machine's order, and Pillow swaps their bytes once more: 0.5 becomes 8.8e-44, and 1 of 16 bits becomes 256, without
# a word. OpenCV and tifffile read the same files rightly; so does Pillow for 16 bits without a sign.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet pillow==13.0.0 numpy==2.4.6 tifffile==2026.3.3 imagecodecs==2026.3.6 opencv-python-headless==5.0.0.93
venv/bin/python - <<'PYTHON'
import cv2
import numpy as np
import PIL
import tifffile
from PIL import Image

print("Pillow", PIL.__version__, "OpenCV", cv2.__version__, "tifffile", tifffile.__version__)
surprising = {}
for name, value in (("float32", 0.5), ("int16", 1), ("uint16", 1)):
    for compression in (None, "zlib"):
        tifffile.imwrite(
            "a.tif", np.full((4, 4), value, name), byteorder=">", compression=compression, photometric="minisblack"
        )
        pillow = np.asarray(Image.open("a.tif")).flat[0]
        others = cv2.imread("a.tif", cv2.IMREAD_UNCHANGED).flat[0], tifffile.imread("a.tif").flat[0]
        print(f"{name:8} compression {compression}: Pillow {pillow}, OpenCV {others[0]}, tifffile {others[1]}")
        assert others == (value, value), others
        surprising[name, compression] = bool(pillow != value)
wanted = {("float32", "zlib"), ("int16", "zlib")}
assert {key for key, odd in surprising.items() if odd} == wanted, surprising
print("as described: compressed big-endian floats and signed numbers have their bytes swapped")
PYTHON
