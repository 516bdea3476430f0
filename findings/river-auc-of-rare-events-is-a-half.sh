#!/usr/bin/env bash
# Guess: River's ROCAUC, which watches a model on a device row by row, is close to the exact area that scikit-learn computes:
# the area depends on the order of the scores and not on their size.
# What happens: it sorts scores into ten fixed steps between 0 and 1. A model of rare faults whose probabilities stay below 0.1
# has them all in the first step: its area is 0.5, a coin's, where 0.84 is right, and nothing is said. Scores near 1 fare alike.
# `n_thresholds=10000` helps for the price of as many counters.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet river==0.26.1 scikit-learn==1.9.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
from river.metrics import ROCAUC
from sklearn.metrics import roc_auc_score

rng = np.random.default_rng(0)
faulty = rng.random(5000) < 0.02
scores = 0.3 * faulty + 0.7 * rng.random(5000)


def by_river(given: np.ndarray, **settings: int) -> float:
    metric = ROCAUC(**settings)
    for fault, score in zip(faulty.tolist(), given.tolist(), strict=True):
        metric.update(fault, {True: score, False: 1 - score})
    return round(metric.get(), 3)


print("river", version("river"))
seen = {}
for name, given in {"0 to 1": scores, "0 to 0.1": scores / 10, "0.9 to 1": 0.9 + scores / 10}.items():
    exact = round(float(roc_auc_score(faulty, given)), 3)
    seen[name] = by_river(given), by_river(given, n_thresholds=10_000), exact
    print(f"scores from {name}: River {seen[name][0]}, with 10000 thresholds {seen[name][1]}, scikit-learn {exact}")
assert all(abs(fine - exact) < 0.01 for _, fine, exact in seen.values())
assert abs(seen["0 to 1"][0] - seen["0 to 1"][2]) < 0.01
assert seen["0 to 0.1"][0] == 0.5 and seen["0.9 to 1"][0] < 0.6
PYTHON
venv/bin/python try.py
# Seen: scores from 0 to 0.1: River 0.5, with 10000 thresholds 0.854, scikit-learn 0.854
