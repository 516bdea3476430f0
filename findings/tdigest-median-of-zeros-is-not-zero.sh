#!/usr/bin/env bash
# Guess: the percentiles of tdigest, a sketch that devices keep and a server merges, lie among the values that were counted, and
# are as near for a counter that is mostly 0 as for a temperature.
# What happens: it draws a line through the place of a value, however many readings were that very value. Where nine of ten are 0
# and the others 100, the median is 9 and the tenth percentile -71; of a valve that is at 20 for four fifths of the time the
# median is 27. Percentiles of values that are all different are right to a hundredth.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet tdigest==0.5.2.2 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from tdigest import TDigest

rng = np.random.default_rng(0)
SHARES = (10, 25, 50, 75)


def percentiles(readings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of two devices' sketches, merged, and of the readings themselves."""
    halves = []
    for half in np.array_split(readings, 2):
        halves.append(TDigest())
        halves[-1].batch_update(half.tolist())
    merged = halves[0] + halves[1]
    return np.array([float(merged.percentile(share)) for share in SHARES]), np.percentile(readings, SHARES)


print("tdigest", version("tdigest"))
made = {
    "temperature": rng.normal(20, 5, 2000),
    "counter": np.where(rng.random(2000) < 0.9, 0.0, 100.0),
    "valve": np.where(rng.random(2000) < 0.8, 20, rng.normal(60, 5, 2000)),
}
seen = {name: percentiles(readings) for name, readings in made.items()}
for name, (sketch, exact) in seen.items():
    print(f"{name}: percentiles {SHARES} of the sketch {sketch.round(1)}, exact {exact.round(1)}")
assert np.abs(np.subtract(*seen["temperature"])).max() < 0.5
assert (seen["counter"][1] == 0).all() and seen["counter"][0][0] < -50 and seen["counter"][0][2] > 5
assert seen["valve"][1][2] == 20 and seen["valve"][0][2] > 25
PYTHON
venv/bin/python try.py
# Seen: counter: percentiles (10, 25, 50, 75) of the sketch [-71.2 -41.2 8.8 58.8], exact [0. 0. 0. 0.]
