#!/usr/bin/env bash
# Guess: skl2onnx converts nearest neighbours that are weighted by their distance as scikit-learn has them: a row that was
# learned has exactly the value that was learned. And `Normalizer("max")` divides by the largest magnitude.
# What happens: all neighbours weigh the same, as if `weights="uniform"` had been asked for, without a word: of the learned rows,
# a third has another value. And the divisor is the largest value with its sign, so that a row whose largest magnitude is negative
# comes out beyond -1, and one of negative values alone with the other sign.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnxruntime
import skl2onnx
import sklearn
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.preprocessing import Normalizer

rng = np.random.default_rng(0)
rows = rng.normal(size=(200, 3)).astype(np.float32)
kind, value = (rows[:, 0] > 0).astype(int), rows[:, 0] * 10


def by_onnx(model: object, given: np.ndarray) -> np.ndarray:
    converted = skl2onnx.to_onnx(model, rows[:1]).SerializeToString()
    return onnxruntime.InferenceSession(converted).run(None, {"X": given})[0]


onnxruntime.set_default_logger_severity(3)
print("skl2onnx", skl2onnx.__version__, "scikit-learn", sklearn.__version__, "onnxruntime", onnxruntime.__version__)
for kind_of_model, learned in ((KNeighborsClassifier, kind), (KNeighborsRegressor, value)):
    weighted, uniform = (kind_of_model(weights=weights).fit(rows, learned) for weights in ("distance", "uniform"))
    converted = by_onnx(weighted, rows).ravel()
    off = [round(float(np.abs(made - learned).max()), 2) for made in (weighted.predict(rows), converted)]
    alike = round(float(np.isclose(converted, uniform.predict(rows), atol=1e-3).mean()), 2)
    print(f"{kind_of_model.__name__}: off on learned rows: scikit-learn {off[0]}, ONNX {off[1]}; as uniform: {alike}")
    assert off[0] == 0 and off[1] > 0.9 and alike == 1
SIGNED = np.array([[1, 2, -4], [-1, -2, -4], [1, 2, 4]], np.float32)
normalizer = Normalizer("max").fit(SIGNED)
norms = normalizer.transform(SIGNED).tolist(), by_onnx(normalizer, SIGNED).tolist()
print("normalised by scikit-learn and ONNX:", *norms)
assert norms[0][:2] == [[0.25, 0.5, -1], [-0.25, -0.5, -1]] and norms[1][:2] == [[0.5, 1, -2], [1, 2, 4]]
assert norms[0][2] == norms[1][2]
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: KNeighborsRegressor: off on learned rows: scikit-learn 0.0, ONNX 11.74; normalised [0.25, 0.5, -1.0] and [0.5, 1.0, -2.0]
