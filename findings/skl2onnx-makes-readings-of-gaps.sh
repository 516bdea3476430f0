#!/usr/bin/env bash
# Guess: what scikit-learn's transformers make of a missing value (NaN) skl2onnx keeps, or it refuses: PowerTransformer leaves it
# missing, OrdinalEncoder gives it the code it was told, TargetEncoder the mean of the rows in which it was missing.
# What happens: of three, none is kept and nothing is said. PowerTransformer (its default, Yeo-Johnson) takes a missing value for 0,
# so that a silent sensor is a reading 3.4 deviations below the mean, and what would fill it later never sees a gap (Box-Cox keeps
# it); OrdinalEncoder gives -1 whatever it was told; TargetEncoder the mean of all rows, as for a value never seen.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnxruntime
import skl2onnx
from sklearn.preprocessing import OrdinalEncoder, PowerTransformer, TargetEncoder

rng = np.random.default_rng(0)
READINGS = rng.lognormal(3, 1, (200, 1)).astype(np.float32)
READINGS[0] = np.nan
ROOMS = np.repeat(np.float32([0, 1, 2, np.nan]), 25)[:, None]
HEAT = np.repeat([5.0, 10, 15, 100], 25) + rng.normal(size=100)
print("skl2onnx", skl2onnx.__version__)


def both(model: object, rows: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """What scikit-learn and ONNX make of rows of one column."""
    asked = np.float32(rows)[:, None]
    session = onnxruntime.InferenceSession(skl2onnx.to_onnx(model, asked[:1]).SerializeToString())
    source, (onnx,) = model.transform(asked).ravel(), session.run(None, {"X": asked})
    print(f"{model}: scikit-learn {source.round(2)}, ONNX {onnx.ravel().round(2)}")
    assert np.allclose(source[:2], onnx.ravel()[:2], rtol=1e-3)
    return source, onnx.ravel()


source, onnx = both(PowerTransformer().fit(READINGS), [5, 50, np.nan])
assert np.isnan(source[2]) and -4 < onnx[2] < -3
source, onnx = both(PowerTransformer(method="box-cox").fit(READINGS), [5, 50, np.nan])
assert np.isnan(source[2]) and np.isnan(onnx[2])
source, onnx = both(OrdinalEncoder(encoded_missing_value=7).fit(ROOMS), [0, 2, np.nan])
assert source[2] == 7 and onnx[2] == -1
source, onnx = both(TargetEncoder(random_state=0).fit(ROOMS, HEAT), [0, 2, np.nan])
assert source[2] > 95 and abs(onnx[2] - HEAT.mean()) < 0.1
PYTHON
venv/bin/python try.py
# Seen: PowerTransformer(): scikit-learn [-1.44 0.94 nan], ONNX [-1.44 0.94 -3.37]; TargetEncoder: 99.67 and 32.36
