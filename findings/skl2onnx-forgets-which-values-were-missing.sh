#!/usr/bin/env bash
# Guess: skl2onnx converts `SimpleImputer(add_indicator=True)`, which tells the model which sensors were silent, with its
# additional columns, or it refuses it.
# What happens: the columns are left out, without a word. Linear models behind it take the narrower rows all the same: where a
# silent sensor is the fault, scikit-learn finds all faults and ONNX none. Only a forest is refused, by onnxruntime, as
# it asks for a column that is not there.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet scikit-learn==1.9.1 skl2onnx==1.20.0 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnxruntime
import skl2onnx
import sklearn
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline

rng = np.random.default_rng(0)
rows = rng.normal(size=(600, 3)).astype(np.float32)
rows[rng.random(rows.shape) < 0.2] = np.nan
fault = np.isnan(rows[:, 1]).astype(int)


def by_onnx(model: object) -> np.ndarray:
    converted = skl2onnx.to_onnx(model, rows[:1]).SerializeToString()
    return onnxruntime.InferenceSession(converted).run(None, {"X": rows})[0]


onnxruntime.set_default_logger_severity(4)
print("skl2onnx", skl2onnx.__version__, "scikit-learn", sklearn.__version__, "onnxruntime", onnxruntime.__version__)
imputer = SimpleImputer(add_indicator=True).fit(rows)
columns = imputer.transform(rows).shape[1], by_onnx(imputer).shape[1]
print("columns by scikit-learn and ONNX:", columns)
assert columns == (6, 3)
for model in (LogisticRegression(), Ridge()):
    pipeline = make_pipeline(SimpleImputer(add_indicator=True), model).fit(rows, fault)
    found = [round(float(labels[fault == 1].mean()), 2) for labels in (pipeline.predict(rows), by_onnx(pipeline))]
    print(f"{type(model).__name__}: faults found by scikit-learn and ONNX, as a share: {found}")
    assert found[0] > 0.98 and found[1] < 0.3
forest = make_pipeline(SimpleImputer(add_indicator=True), RandomForestClassifier(20, random_state=0)).fit(rows, fault)
try:
    by_onnx(forest)
    refused = False
except Fail as error:
    refused = "requests feature" in str(error)
print("a forest is refused:", refused)
assert refused
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: columns: (6, 3); LogisticRegression: faults found: [1.0, 0.0]
