#!/usr/bin/env bash
# Guess: skl2onnx converts a classifier whose threshold was tuned, or whose probabilities were calibrated, so that it decides as
# scikit-learn, or it refuses, as it does for FixedThresholdClassifier.
# What happens: of TunedThresholdClassifierCV the threshold is lost. Of rare faults, for which it was tuned to 0.06, scikit-learn
# finds 90 of 100 and ONNX 10. And isotonic calibration becomes a staircase, where scikit-learn draws lines from step to step:
# a probability is off by up to 0.05. Sigmoid calibration is right. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnxruntime
import skl2onnx
import sklearn
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.naive_bayes import GaussianNB

rng = np.random.default_rng(0)
rows, others = rng.normal(size=(2, 300, 4)).astype(np.float32)
fault = (rows[:, 0] + rng.normal(size=300) > 1.8).astype(int)
kind = (rows[:, 0] + rng.normal(size=300) > 0).astype(int)


def by_onnx(model: object, given: np.ndarray) -> list[np.ndarray]:
    converted = skl2onnx.to_onnx(model, rows[:1], options={id(model): {"zipmap": False}}).SerializeToString()
    return onnxruntime.InferenceSession(converted).run(None, {"X": given})


def off(method: str) -> float:
    """The largest difference of a calibrated probability."""
    model = CalibratedClassifierCV(GaussianNB(), method=method, ensemble=False).fit(rows, kind)
    return float(np.abs(by_onnx(model, others)[1] - model.predict_proba(others)).max())


onnxruntime.set_default_logger_severity(3)
print("scikit-learn", sklearn.__version__, "skl2onnx", skl2onnx.__version__)
tuned = TunedThresholdClassifierCV(LogisticRegression(), scoring="balanced_accuracy").fit(rows, fault)
labels = {"scikit-learn": tuned.predict(rows), "ONNX": by_onnx(tuned, rows)[0]}
found = {name: round(float(given[fault == 1].mean()), 2) for name, given in labels.items()}
print(f"threshold {tuned.best_threshold_:.3f}: share of faults found: {found}")
calibrated = {method: off(method) for method in ("sigmoid", "isotonic")}
print("largest difference of a calibrated probability:", {name: round(each, 3) for name, each in calibrated.items()})
assert tuned.best_threshold_ < 0.2 and found["scikit-learn"] > 0.8 and found["ONNX"] < 0.4
assert np.array_equal(labels["ONNX"], tuned.estimator_.predict(rows))
assert calibrated["sigmoid"] < 0.001 and calibrated["isotonic"] > 0.03
PYTHON
venv/bin/python try.py
# Seen: threshold 0.057: faults found: scikit-learn 0.9, ONNX 0.1; calibrated probability: sigmoid 0.0, isotonic 0.053
