#!/usr/bin/env bash
# Guess: the noise of diffprivlib's private sums, means and counts cancels over devices, as that of the Laplace mechanism does: the
# mean of 2000 devices' private counts of faults is the mean of their counts.
# What happens: what falls below the lower bound is moved to it, so that a device without a fault reports one on average at an
# epsilon of 0.5, and 2000 devices together report 1800 faults that nobody had. `sum` and `mean` do alike. With faults on half
# of the data, in the middle of what is possible, the noise cancels.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet diffprivlib==0.6.6 scikit-learn==1.7.2 numpy==2.4.6
cat > try.py <<'PYTHON'
import diffprivlib
import numpy as np
from diffprivlib import tools

DEVICES, BOUNDS = 2000, (0, 1)
NONE, HALF = np.zeros(100), np.repeat([0.0, 1.0], 50)


def excess(flags: np.ndarray) -> dict[str, float]:
    """How much the mean of all devices' private answers is above the truth, which is the same on each."""
    private = {
        "count": lambda seed: tools.count_nonzero(flags, epsilon=0.5, random_state=seed),
        "sum": lambda seed: tools.sum(flags, epsilon=0.5, bounds=BOUNDS, random_state=seed),
        "100 means": lambda seed: 100 * tools.mean(flags, epsilon=0.5, bounds=BOUNDS, random_state=seed),
    }
    means = {name: np.mean([answer(seed) for seed in range(DEVICES)]) for name, answer in private.items()}
    return {name: round(float(mean - flags.sum()), 2) for name, mean in means.items()}


print("diffprivlib", diffprivlib.__version__)
without, with_half = excess(NONE), excess(HALF)
print(f"above the truth, mean of {DEVICES} devices: without a fault {without}; half of the data faults {with_half}")
assert all(0.8 < each < 1.2 for each in without.values()) and all(abs(each) < 0.3 for each in with_half.values())
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: without a fault {count: 0.91, sum: 1.07, 100 means: 1.07}; with faults on half of the data {count: -0.06, sum: 0.12}
