#!/usr/bin/env bash
# Guess: the population stability index of frouros for two samples of 1000 readings from the same sensor, where nothing has changed,
# is below 0.1, and never above 0.25, which by the usual rule is a drift. Of readings that are spread evenly it is so.
# What happens: ten bins of equal width reach from the least reading to the largest, and one that only one of the samples has
# readings in counts as a share of 1e-308: a single reading there adds 0.7. A third of all pairs of samples of a bell
# curve is above 0.25, the largest at 3.5, more than a real shift by half a deviation often has.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet frouros==0.9.0 numpy==2.1.3 scipy==1.14.1
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from frouros.detectors.data_drift import PSI

rng = np.random.default_rng(0)


def index(before: np.ndarray, after: np.ndarray) -> float:
    detector = PSI()
    detector.fit(X=before)
    return float(detector.compare(X=after)[0].distance)


print("frouros", version("frouros"))
samples = {
    "spread evenly": [rng.random((2, 1000)) for _ in range(100)],
    "of a bell curve": [rng.normal(size=(2, 1000)) for _ in range(100)],
    "shifted by half a deviation": [rng.normal([[0], [0.5]], size=(2, 1000)) for _ in range(100)],
}
seen = {name: np.array([index(*pair) for pair in pairs]) for name, pairs in samples.items()}
for name, found in seen.items():
    print(f"{name}: median {np.median(found):.2f}, largest {found.max():.2f}, above 0.25: {(found > 0.25).mean():.0%}")
readings = rng.random(1000)
alike, one_more = index(readings, readings), index(readings, np.append(readings, 1.5))
print(f"the same readings: {alike:.2f}, with one more of 1.5: {one_more:.2f}")
assert seen["spread evenly"].max() < 0.1 and (seen["of a bell curve"] > 0.25).mean() > 0.2
assert seen["of a bell curve"].max() > np.quantile(seen["shifted by half a deviation"], 0.25)
assert alike < 0.01 and one_more > 0.5
PYTHON
venv/bin/python try.py
# Seen: of a bell curve: median 0.02, largest 3.52, above 0.25: 32%; the same readings: 0.00, with one more of 1.5: 0.70
