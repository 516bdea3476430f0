#!/usr/bin/env bash
# Guess: the detectors of changes in frouros find that a sensor's mean has fallen by five times its noise as they find that it
# has risen.
# What happens: CUSUM, PageHinkley and GeometricMovingAverage look for a rise alone. A fall, however large, is never found, and
# no setting turns them round; a sensor that goes from 20 to 0 is a calm one. ADWIN and BOCD of the same module, which take the
# same values, find both. The sign has to be turned, and a second detector be run.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet frouros==0.9.0 numpy==2.1.3 scipy==1.14.1
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from frouros.detectors import concept_drift

rng = np.random.default_rng(0)
CALM = rng.normal(20, 1, 1000)
STREAMS = {end: np.r_[CALM, rng.normal(end, 1, 1000)] for end in (25, 15, 0)}


def found(detector: str, values: np.ndarray) -> int | None:
    """How many values after the change it is found by a detector with its defaults."""
    seen = getattr(concept_drift, detector)()
    for count, value in enumerate(values):
        seen.update(value=value)
        if seen.status["drift"]:
            return count - len(CALM)
    return None


print("frouros", version("frouros"))
for detector in ("CUSUM", "PageHinkley", "GeometricMovingAverage", "ADWIN", "BOCD"):
    after = {end: found(detector, values) for end, values in STREAMS.items()}
    print(f"{detector}: readings from the change to its find, by the new mean: {after}")
    assert 0 <= after[25] < 50
    if detector in ("ADWIN", "BOCD"):
        assert 0 <= after[15] < 50 and 0 <= after[0] < 50
    else:
        assert after[15] is after[0] is None
PYTHON
venv/bin/python try.py
# Seen: CUSUM: {25: 9, 15: None, 0: None}; PageHinkley: {25: 18, 15: None, 0: None}; BOCD: {25: 25, 15: 5, 0: 0}
