#!/usr/bin/env bash
# Guess: a model that CatBoost writes as ONNX or as Python code answers as its own `predict`: counts for a model of counts
# (Poisson, Tweedie), the labels that it was trained with, and missing values as in training.
# What happens: of counts ONNX and Python give the logarithm, 4.8 for 118 parts a day. Of two classes 10 and 20 ONNX gives the
# numbers 0 and 1, while texts and three classes keep their labels. And with `nan_mode="Max"` the Python code takes a missing
# value for the least one, where ONNX is right. Nothing is said.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet catboost==1.2.10 onnxruntime==1.32.0 numpy==2.4.6
cat > try.py <<'PYTHON'
import importlib

import catboost
import numpy as np
import onnxruntime

rng = np.random.default_rng(0)
rows = rng.random((600, 3)).astype(np.float32)
parts = np.round(100 + 50 * rows[:, 0])
gaps = np.where(rng.random(rows.shape) < 0.3, np.nan, rows).astype(np.float32)
ORDINARY = {"iterations": 60, "depth": 3, "verbose": 0, "thread_count": 1, "random_seed": 0}


def by_onnx(model: catboost.CatBoost, given: np.ndarray) -> np.ndarray:
    model.save_model("model.onnx", format="onnx")
    return np.ravel(onnxruntime.InferenceSession("model.onnx").run(None, {"features": given})[0])


def by_python(model: catboost.CatBoost, given: np.ndarray, name: str) -> np.ndarray:
    model.save_model(f"{name}.py", format="python")
    importlib.invalidate_caches()
    apply = importlib.import_module(name).apply_catboost_model
    return np.array([apply(row) for row in given.tolist()])


onnxruntime.set_default_logger_severity(3)
print("catboost", catboost.__version__, "onnxruntime", onnxruntime.__version__)
errors = {}
for name, given, settings in (
    ("rmse", rows, {"loss_function": "RMSE"}),
    ("poisson", rows, {"loss_function": "Poisson"}),
    ("tweedie", rows, {"loss_function": "Tweedie:variance_power=1.5"}),
    ("lowest", gaps, {"nan_mode": "Min"}),
    ("highest", gaps, {"nan_mode": "Max"}),
):
    model = catboost.CatBoostRegressor(**ORDINARY, **settings).fit(given, parts)
    right, onnx, python = model.predict(given), by_onnx(model, given), by_python(model, given, name)
    print(f"{settings}: predict {right[0]:.2f}, ONNX {onnx[0]:.2f}, Python {python[0]:.2f}")
    errors[name] = float(np.abs(onnx - right).max()), float(np.abs(python - right).max())
    if name in ("poisson", "tweedie"):
        assert max(np.abs(np.exp(each) - right).max() for each in (onnx, python)) < 0.01
assert max(*errors["rmse"], *errors["lowest"], errors["highest"][0]) < 0.001
assert min(*errors["poisson"], *errors["tweedie"]) > 2 and errors["highest"][1] > 5
labels = {}
for classes in ([10, 20], ["low", "high"], [10, 20, 30]):
    given = np.array(classes)[np.digitize(parts, np.linspace(100, 150, len(classes) + 1)[1:-1])]
    model = catboost.CatBoostClassifier(**ORDINARY).fit(rows, given)
    labels[len(labels)] = sorted(set(model.predict(rows).ravel().tolist())), sorted(set(by_onnx(model, rows).tolist()))
    print(f"classes {classes}: predict {labels[len(labels) - 1][0]}, ONNX {labels[len(labels) - 1][1]}")
assert labels[0] == ([10, 20], [0, 1])
assert labels[1][0] == labels[1][1] and labels[2][0] == labels[2][1]
PYTHON
venv/bin/python try.py
# Seen: Poisson: predict 118.29, ONNX 4.77, Python 4.77; nan_mode Max: 124.73, 124.73, 101.35; classes [10, 20]: ONNX [0, 1]
