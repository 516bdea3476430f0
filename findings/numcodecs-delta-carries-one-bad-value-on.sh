#!/usr/bin/env bash
# Guess: the Delta filter of numcodecs, which Zarr applies to slowly changing readings, gives floats back as they were, but for
# the rounding of a difference; or it refuses them. A reading that is not a number is one such reading afterwards.
# What happens: it adds the differences up again, so that whatever is wrong once stays wrong to the end of the chunk. After a
# NaN all readings are NaN, without a word. After one spike of 1e8, as of a sensor with a loose wire, all temperatures around
# 20 are off by up to 4 degrees, after -9999, a usual mark of a gap, by 0.0005. Whole numbers come back exactly.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet numcodecs==0.16.6 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from numcodecs import Delta

READINGS = np.linspace(20, 21, 1000, dtype=np.float32)
BAD = 100


def error(bad: float) -> np.ndarray:
    """How far readings are off after a bad one, which is itself in its place."""
    given = READINGS.copy()
    given[BAD] = bad
    filter_ = Delta(dtype="f4")
    back = filter_.decode(filter_.encode(given))
    assert np.array_equal(back[:BAD], given[:BAD]) and np.array_equal(back[BAD], given[BAD], equal_nan=True)
    return np.abs(back - given)[BAD + 1 :]


print("numcodecs", version("numcodecs"))
seen = {bad: error(bad) for bad in (20.1, -9999.0, 1e8, float("nan"))}
for bad, off in seen.items():
    print(f"one reading of {bad} in {len(READINGS)}: later ones are off by up to {off.max():.6f}")
assert seen[20.1].max() < 1e-5 and seen[-9999].min() > 1e-5
assert np.median(seen[1e8]) > 1 and np.isnan(error(float("nan"))).all()
counts = np.array([5, 6, 2**31 - 1, 7, 8], "i4")
assert np.array_equal(Delta(dtype="i4").decode(Delta(dtype="i4").encode(counts)), counts)
PYTHON
venv/bin/python try.py
# Seen: later ones are off by up to 0.000462 after -9999, by 3.898899 after 1e8, nan after nan
