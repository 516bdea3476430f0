#!/usr/bin/env bash
# Guess: emlearn, which makes C of a model of scikit-learn for microcontrollers, gives for a tree or forest with the settings
# that it has by itself the classes that scikit-learn gives, or says that features need a scale.
# What happens: features and thresholds are cut to 16-bit integers, so that all of 0 to 1, the range to which sensors are
# usually scaled, is 0: an accuracy of 1.0 becomes 0.36, that of one class, and nothing is said. With `dtype="float"`, or
# features in the thousands, the classes are the same.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet emlearn==0.23.2 scikit-learn==1.9.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import emlearn
import numpy as np
import sklearn
from sklearn.ensemble import RandomForestClassifier

rng = np.random.default_rng(0)
rows = rng.random((400, 4))
labels = (rows[:, 0] > 0.5).astype(int) + (rows[:, 1] > 0.3)


def accuracies(scale: float, **settings: str) -> tuple[float, float]:
    """Of scikit-learn, and of the C that emlearn makes, on rows from 0 to the scale."""
    forest = RandomForestClassifier(10, random_state=0).fit(rows * scale, labels)
    made = emlearn.convert(forest, **settings)
    return tuple(float(np.mean(model.predict(rows * scale) == labels)) for model in (forest, made))


print("emlearn", version("emlearn"), "scikit-learn", sklearn.__version__)
seen = {"0 to 1": accuracies(1), "0 to 10000": accuracies(10_000), "0 to 1, float": accuracies(1, dtype="float")}
for name, (before, after) in seen.items():
    print(f"features of {name}: right by scikit-learn {before:.2f}, by emlearn {after:.2f}")
assert all(before == 1 for before, _ in seen.values())
assert seen["0 to 1"][1] < 0.5 and seen["0 to 10000"][1] > 0.99 and seen["0 to 1, float"][1] > 0.99
PYTHON
venv/bin/python try.py
# Seen: features of 0 to 1: right by scikit-learn 1.00, by emlearn 0.36
