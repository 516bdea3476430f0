#!/usr/bin/env bash
# Guess: a point cloud that laspy writes has the places that it was given, to a fraction of what a scanner resolves, and values
# that a field does not hold are refused.
# What happens: a new file has a scale of 0.01 whatever the points are. Given in degrees, as GPS has them, they are rounded
# to a kilometre and fall into one, without a word; places too large for the scale are refused. An intensity of 70000 is
# refused in a list, but in an array it is 4464.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet laspy==2.7.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import laspy
import numpy as np

EAST, NORTH = np.array([8.5417, 8.5437]), np.array([47.3769, 47.3789])  # 270 m apart
cloud = laspy.create()
cloud.x, cloud.y, cloud.z = EAST, NORTH, np.array([408.0, 409.0])
try:
    cloud.intensity = [70_000, 300]
    from_list = cloud.intensity.tolist()
except OverflowError:
    from_list = "refused"
cloud.intensity = np.array([70_000, 300])
cloud.write("cloud.las")
read = laspy.read("cloud.las")
places = [[round(float(value), 7) for value in axis] for axis in (read.x, read.y)]
print("laspy", version("laspy"), "scales", read.header.scales.tolist())
print("written", EAST.tolist(), NORTH.tolist(), "read", *places)
print("intensities of a list:", from_list, "of an array:", read.intensity.tolist())
assert places == [[8.54, 8.54], [47.38, 47.38]]
assert from_list == "refused" and read.intensity.tolist() == [4464, 300]
PYTHON
venv/bin/python try.py
# Seen: written [8.5417, 8.5437] [47.3769, 47.3789] read [8.54, 8.54] [47.38, 47.38]
