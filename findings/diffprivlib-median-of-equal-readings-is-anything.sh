#!/usr/bin/env bash
# Guess: diffprivlib's private median of 100 readings that are all 21 degrees is close to 21 with an epsilon of 1, and closer with
# one of 10: half of all readings would have to change before the true median does.
# What happens: it is any number between the bounds, alike in all of them, whatever epsilon is: the chance of a number between
# two neighbouring readings is weighted by their distance, which is 0 between equal ones. Readings in whole degrees have hardly any
# other: of 50 of 20 and 50 of 22, it is anything from 20 to 22. With noise of a hundredth of a degree it is 21.0.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet diffprivlib==0.6.6 scikit-learn==1.7.2 numpy==2.4.6
cat > try.py <<'PYTHON'
import diffprivlib
import numpy as np
from diffprivlib import tools

BOUNDS = (-20, 60)
rng = np.random.default_rng(0)
EQUAL = np.full(100, 21.0)
READINGS = {"equal": EQUAL, "20 and 22": np.repeat([20.0, 22.0], 50), "with noise": EQUAL + rng.normal(0, 0.01, 100)}


def spread(readings: np.ndarray, epsilon: float) -> list[float]:
    """The least, lower quarter, upper quarter and largest of 200 private medians."""
    medians = [tools.median(readings, epsilon=epsilon, bounds=BOUNDS, random_state=seed) for seed in range(200)]
    return np.quantile(medians, [0, 0.25, 0.75, 1]).round(1).tolist()


print("diffprivlib", diffprivlib.__version__)
seen = {name: {epsilon: spread(readings, epsilon) for epsilon in (1, 10)} for name, readings in READINGS.items()}
for name, by_epsilon in seen.items():
    print(f"{name}: private medians by epsilon, least, quarters, largest: {by_epsilon}")
for least, lower, upper, largest in seen["equal"].values():
    assert least < -18 and -10 < lower < 10 and 30 < upper < 50 and largest > 58
for least, lower, upper, largest in seen["20 and 22"].values():
    assert 20 <= least < 20.2 and 20.2 < lower < 20.8 and 21.2 < upper < 21.8 and 21.8 < largest <= 22
assert all(abs(each - 21) < 0.1 for each in (*seen["with noise"][1], *seen["with noise"][10]))
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: equal: {1: [-19.9, 1.4, 40.9, 59.3], 10: [-19.9, 1.4, 40.9, 59.3]}; with noise: {1: [21.0, 21.0, 21.0, 21.0]}
