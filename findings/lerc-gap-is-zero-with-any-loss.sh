#!/usr/bin/env bash
# Guess: LERC, the codec of height models and GeoTIFF, keeps a NaN as NaN whatever error it may make, or refuses it; so that
# code which was tried without loss holds with an error of a millionth.
# What happens: without loss the raster comes back with its NaN. With any permitted error the same call gives 0.0 there: a
# reading of 0 among values of 20, which pulls the mean and passes a test for NaN. Only the third answer, a mask, tells of it,
# which code that was tried without loss had no need to read.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet lerc==4.0.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import math
from importlib.metadata import version

import lerc
import numpy as np

heights = (20 + np.random.default_rng(0).random((16, 16))).astype(np.float32)
heights[3, 3] = np.nan


def decoded(error: float) -> tuple[float, bool]:
    """The value at the gap, and whether the mask calls it valid."""
    code, _, blob = lerc.encode(heights, 1, False, None, error, 1 << 20)
    assert code == 0
    _, values, mask = lerc.decode(blob)
    assert np.abs(values - heights)[~np.isnan(heights)].max() <= error + 1e-6
    return float(values[3, 3]), bool(mask[3, 3])


print("lerc", version("lerc"))
seen = {error: decoded(error) for error in (0, 1e-6, 0.1)}
for error, (value, valid) in seen.items():
    print(f"NaN, with an error of {error}: {value}, the mask says {'valid' if valid else 'missing'}")
assert math.isnan(seen[0][0]) and not seen[0][1]
assert seen[1e-6] == seen[0.1] == (0, False)
PYTHON
venv/bin/python try.py
# Seen: nan with an error of 0, 0.0 with 1e-06 and 0.1; the mask says missing in all
