#!/usr/bin/env bash
# Guess: ADWIN of river finds the same drift at the same reading whatever unit is used: it has a confidence and no threshold.
# What happens: its bound has a term for values between 0 and 1 that does not shrink with the spread. A pressure that falls by
# ten times its noise, from 6 to 5.95 bar, is found after 15 readings in pascal and millibar, after 175 in bar, and in 2000 not
# at all in megapascal. Nothing is said. Readings divided by their usual spread are found in 15 again.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet river==0.26.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import river
from river.drift import ADWIN

rng = np.random.default_rng(0)
CHANGE = 2000
BAR = np.r_[rng.normal(6.0, 0.005, CHANGE), rng.normal(5.95, 0.005, CHANGE)]
UNITS = {"Pa": 1e5, "mbar": 1e3, "bar": 1.0, "MPa": 0.1}


def found(readings: np.ndarray) -> int | None:
    """How many readings after the change the first alarm is given."""
    detector = ADWIN()
    for number, reading in enumerate(readings.tolist()):
        detector.update(reading)
        if detector.drift_detected:
            return number - CHANGE
    return None


print("river", river.__version__)
seen = {unit: found(BAR * scale) for unit, scale in UNITS.items()}
by_spread = found((BAR - BAR[:CHANGE].mean()) / BAR[:CHANGE].std())
print("readings from the change to the alarm:", seen, "in units of the noise:", by_spread)
assert 0 < by_spread < 50 and 0 < seen["Pa"] < 50 and 0 < seen["mbar"] < 50
assert seen["bar"] > 100 and seen["MPa"] is None
PYTHON
venv/bin/python try.py
# Seen: readings from the change to the alarm: {Pa: 15, mbar: 15, bar: 175, MPa: None} in units of the noise: 15
