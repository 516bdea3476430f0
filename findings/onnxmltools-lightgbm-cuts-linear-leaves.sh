#!/usr/bin/env bash
# Guess: a LightGBM model with `linear_tree=True`, whose leaves hold a small linear function each, is refused by converters that
# do not know it, as treelite does; so is one with `reg_sqrt=True`, which squares its answers.
# What happens: onnxmltools and m2cgen give each leaf's constant alone: an error of 0.05 becomes one of 0.69, more than twice
# that of plain trees. And onnxmltools leaves out the square: of readings of about 100 the ONNX model answers 10. Nothing is said.
# m2cgen and treelite square, and plain trees are the same in all.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnxmltools==1.16.0 lightgbm==4.7.0 m2cgen==0.10.0 treelite==4.8.1 onnxruntime==1.31.1 \
    scikit-learn==1.9.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import warnings

import lightgbm
import m2cgen
import numpy as np
import onnxmltools
import onnxruntime
import treelite
from onnxmltools.convert.common.data_types import FloatTensorType

rng = np.random.default_rng(0)
rows = rng.normal(size=(400, 3)).astype(np.float32)
readings = 100 + 5 * rows[:, 0] + rows[:, 1]


def by_onnx(model: lightgbm.LGBMRegressor) -> np.ndarray:
    given = [("X", FloatTensorType([None, rows.shape[1]]))]
    converted = onnxmltools.convert_lightgbm(model, initial_types=given, target_opset=15).SerializeToString()
    return onnxruntime.InferenceSession(converted).run(None, {"X": rows})[0].ravel()


def by_m2cgen(model: lightgbm.LGBMRegressor) -> np.ndarray:
    names: dict[str, object] = {}
    exec(m2cgen.export_to_python(model), names)
    return np.array([names["score"](row) for row in rows.tolist()])


def by_treelite(model: lightgbm.LGBMRegressor) -> np.ndarray:
    return treelite.gtil.predict(treelite.frontend.from_lightgbm(model.booster_), rows, nthread=1).ravel()


def off(settings: dict[str, bool]) -> dict[str, float | str]:
    """The mean error of LightGBM's answers, and how far each converter's are from them."""
    model = lightgbm.LGBMRegressor(n_estimators=50, n_jobs=1, verbose=-1, **settings).fit(rows, readings)
    own = model.predict(rows)
    seen: dict[str, float | str] = {"LightGBM": round(float(np.abs(own - readings).mean()), 2)}
    for convert in (by_onnx, by_m2cgen, by_treelite):
        try:
            seen[convert.__name__] = round(float(np.abs(convert(model) - own).mean()), 2)
        except treelite.TreeliteError:
            seen[convert.__name__] = "refused"
    return seen


warnings.simplefilter("ignore")
print("onnxmltools", onnxmltools.__version__, "lightgbm", lightgbm.__version__, "m2cgen 0.10.0")
plain, linear, squared = (off(settings) for settings in ({}, {"linear_tree": True}, {"reg_sqrt": True}))
print("plain", plain, "linear_tree", linear, "reg_sqrt", squared, sep="\n")
assert [*plain.values()][1:] == [0, 0, 0] and [*squared.values()][2:] == [0, 0] and squared["by_onnx"] > 80
assert linear["by_onnx"] == linear["by_m2cgen"] > 10 * linear["LightGBM"] and linear["by_treelite"] == "refused"
assert linear["by_onnx"] > 2 * plain["LightGBM"]
PYTHON
OMP_NUM_THREADS=1 venv/bin/python try.py
# Seen: linear_tree {LightGBM: 0.05, by_onnx: 0.69, by_m2cgen: 0.69, by_treelite: refused}; reg_sqrt {LightGBM: 0.32, by_onnx: 89.32}
