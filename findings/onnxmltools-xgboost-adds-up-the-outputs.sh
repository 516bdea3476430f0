#!/usr/bin/env bash
# Guess: onnxmltools converts an XGBRegressor of two outputs, as of a temperature and a humidity, and one with the objective
# `reg:logistic`, as of a share from 0 to 1, so that ONNX answers as XGBoost, or it refuses them.
# What happens: the trees of all outputs are added up in the first column and the second is 0; onnxruntime warns of the shape. A
# share comes out without its logistic function, from below 0 to above 1, and with an offset besides. A classifier of several
# labels becomes one of two classes. Nothing is said of either. A single output of `reg:squarederror` is right.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnxmltools==1.16.0 xgboost-cpu==3.2.0 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnxmltools
import onnxruntime
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType

rng = np.random.default_rng(0)
rows = rng.normal(size=(400, 3)).astype(np.float32)


def by_onnx(model: xgboost.XGBModel) -> list[np.ndarray]:
    given = [("X", FloatTensorType([None, rows.shape[1]]))]
    converted = onnxmltools.convert_xgboost(model, initial_types=given, target_opset=15).SerializeToString()
    return onnxruntime.InferenceSession(converted).run(None, {"X": rows})


def regress(target: np.ndarray, **settings: str) -> tuple[np.ndarray, np.ndarray]:
    """The predictions of XGBoost and of ONNX."""
    model = xgboost.XGBRegressor(n_estimators=20, n_jobs=1, **settings).fit(rows, target)
    return model.predict(rows), by_onnx(model)[0]


print("onnxmltools", onnxmltools.__version__, "xgboost", xgboost.__version__)
plain = regress(rows[:, 0])
print("one output: off by", np.abs(plain[0] - plain[1].ravel()).max())
assert np.allclose(plain[0], plain[1].ravel(), atol=1e-3)
both, by_onnx_both = regress(np.stack([20 + rows[:, 0], 50 + 10 * rows[:, 1]], axis=1))
spread = float(np.ptp(by_onnx_both[:, 0] - both.sum(axis=1)))
print("two outputs: XGBoost", both[0], "ONNX", by_onnx_both[0], "sum less first column differs by", spread)
assert not by_onnx_both[:, 1].any() and spread < 0.01
share, by_onnx_share = regress((rows[:, 0] > 0.5).astype(float), objective="reg:logistic")
print("a share: XGBoost", share.min(), "to", share.max(), "ONNX", by_onnx_share.min(), "to", by_onnx_share.max())
assert 0 < share.min() < share.max() < 1 and by_onnx_share.min() < -0.5 and by_onnx_share.max() > 1.5
labels = np.stack([rows[:, 0] > 0, rows[:, 1] > 0], axis=1).astype(int)
classifier = xgboost.XGBClassifier(n_estimators=20, n_jobs=1).fit(rows, labels)
right = float((classifier.predict(rows) == labels).mean())
by_onnx_labels = by_onnx(classifier)[0]
print("two labels: right by XGBoost", right, "of shape", labels.shape, "by ONNX", by_onnx_labels.shape)
assert right > 0.99 and by_onnx_labels.shape == (400,)
PYTHON
OMP_NUM_THREADS=1 venv/bin/python try.py
# Seen: two outputs: XGBoost [20.1 48.7] ONNX [18.6 0.0]; a share: XGBoost 0.002 to 0.992 ONNX -4.7 to 6.2
