#!/usr/bin/env bash
# Guess: OnnxSlim leaves the answers of a model as they are, also where a convolution is multiplied by a vector, which ONNX
# lays along the last axis: the columns of a picture, the bands of a spectrogram.
# What happens: where there are as many columns as channels it folds the vector into the kernel, as if it were one factor per
# channel. The model is valid, smaller, and answers something else; with one column more it is left alone. onnxsim and
# onnxruntime's own optimization keep the answers.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnxslim==0.1.98 onnxsim==0.8.1 onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import onnxsim
import onnxslim
from onnx import TensorProto, helper, numpy_helper

CHANNELS = 4


def differences(columns: int) -> dict[str, float]:
    """How far answers are from the definition, by tool, of a convolution whose columns are multiplied by 1, 2, ..."""
    rng = np.random.default_rng(0)
    kernel = rng.standard_normal((CHANNELS, 3, 1, 1), dtype=np.float32)
    factors = np.arange(1, columns + 1, dtype=np.float32)
    nodes = [helper.make_node("Conv", ["x", "kernel"], ["made"]), helper.make_node("Mul", ["made", "factors"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, columns])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, CHANNELS, 5, columns])
    weights = [numpy_helper.from_array(kernel, "kernel"), numpy_helper.from_array(factors, "factors")]
    graph = helper.make_graph(nodes, "one", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    picture = rng.standard_normal((1, 3, 5, columns), dtype=np.float32)
    meant = np.einsum("oc,nchw->nohw", kernel[:, :, 0, 0], picture) * factors
    found = {}
    for name, made in {"as it is": model, "onnxsim": onnxsim.simplify(model)[0], "OnnxSlim": onnxslim.slim(model)}.items():
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        found[name] = round(float(np.abs(session.run(None, {"x": picture})[0] - meant).max()), 3)
    return found


print("onnxslim", version("onnxslim"), "onnxsim", version("onnxsim"), "onnxruntime", onnxruntime.__version__)
seen = {columns: differences(columns) for columns in (CHANNELS + 1, CHANNELS)}
for columns, found in seen.items():
    print(f"{CHANNELS} channels, {columns} columns: answers differ by {found}")
assert set(seen[CHANNELS + 1].values()) == {0.0}
assert seen[CHANNELS]["as it is"] == seen[CHANNELS]["onnxsim"] == 0 and seen[CHANNELS]["OnnxSlim"] > 1
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: 4 channels, 4 columns: answers differ by {as it is: 0.0, onnxsim: 0.0, OnnxSlim: 9.921}
