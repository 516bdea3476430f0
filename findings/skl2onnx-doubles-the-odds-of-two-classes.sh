#!/usr/bin/env bash
# Guess: skl2onnx converts linear discriminant analysis of two classes, as of a machine that is well or worn, with the
# probabilities of scikit-learn, as it does for three classes.
# What happens: with two classes it puts the distance d and -d through a softmax, which is the sigmoid of 2 d: 0.71 becomes 0.86 and
# 0.83 becomes 0.96. Classes are those of scikit-learn, so that a comparison of accuracies shows nothing, but an alarm at 0.95
# comes for four times as many rows, and means over devices are off. With three classes probabilities are right.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnxruntime
import skl2onnx
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

rng = np.random.default_rng(0)
ROWS = rng.normal(size=(400, 2)).astype(np.float32)
SEEN = ROWS[:, 0] + rng.normal(size=400)
print("skl2onnx", skl2onnx.__version__)


def surest(cuts: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """The probability of the likeliest class of each row by scikit-learn and by ONNX, whose classes are the same."""
    model = LinearDiscriminantAnalysis().fit(ROWS, np.digitize(SEEN, cuts))
    file = skl2onnx.to_onnx(model, ROWS[:1], options={id(model): {"zipmap": False}}).SerializeToString()
    labels, shares = onnxruntime.InferenceSession(file).run(None, {"X": ROWS})
    assert (labels == model.predict(ROWS)).all()
    return model.predict_proba(ROWS).max(axis=1), shares.max(axis=1)


for cuts in ([0.0], [-0.5, 0.5]):
    source, onnx = surest(cuts)
    print(f"{len(cuts) + 1} classes: off by up to {np.abs(source - onnx).max():.3f}; at least 0.95 in", end=" ")
    print(f"{(source >= 0.95).sum()} rows by scikit-learn, {(onnx >= 0.95).sum()} by ONNX")
    if len(cuts) == 1:
        odds = source / (1 - source)
        assert np.allclose(onnx, odds**2 / (1 + odds**2), atol=1e-4) and (onnx >= 0.95).sum() > 3 * (source >= 0.95).sum()
    else:
        assert np.allclose(source, onnx, atol=1e-4)
PYTHON
venv/bin/python try.py
# Seen: 2 classes: off by up to 0.150; at least 0.95 in 43 rows by scikit-learn, 188 by ONNX
