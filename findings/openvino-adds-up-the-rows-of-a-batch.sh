#!/usr/bin/env bash
# Guess: a network that ends with the sum of absolute errors of each row (ReduceL1 over axis 1), as a detector of anomalies
# does, gives one score per row in OpenVINO, whichever version of operators the file has.
# What happens: of ReduceL1, ReduceLogSum and ReduceLogSumExp in files with operators of version 13 to 17, OpenVINO ignores the axes
# and reduces all there is: a batch of four rows has a single score, the sum over all of them. Nothing is said. The same
# operators of version 11 and 18 are right, and ReduceL2, ReduceMean, ReduceMax and ReduceSumSquare of all versions.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet openvino==2026.4.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat > try.py <<'PYTHON'
import io

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import helper

ROWS = np.array([[1, 2, 3], [1, 1, 1], [4, 5, 6], [0.5, 0.5, 2]], np.float32)
WRONG = {"ReduceL1", "ReduceLogSum", "ReduceLogSumExp"}


def both(operator: str, version: int) -> list[np.ndarray]:
    """What onnxruntime and OpenVINO answer for each row."""
    given = helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["rows", 3])
    made = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["rows"])
    axes = onnx.numpy_helper.from_array(np.array([1]), "axes")
    if version < 18:
        node, stored = helper.make_node(operator, ["rows"], ["scores"], axes=[1], keepdims=0), []
    else:
        node, stored = helper.make_node(operator, ["rows", "axes"], ["scores"], keepdims=0), [axes]
    graph = helper.make_graph([node], "graph", [given], [made], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)
    onnx.checker.check_model(model, full_check=True)
    file = model.SerializeToString()
    compiled = openvino.Core().compile_model(openvino.Core().read_model(io.BytesIO(file)), "CPU")
    return [onnxruntime.InferenceSession(file).run(None, {"rows": ROWS})[0], compiled({"rows": ROWS})[0]]


print("openvino", openvino.__version__, "onnxruntime", onnxruntime.__version__)
for operator in (*sorted(WRONG), "ReduceL2", "ReduceMean", "ReduceMax", "ReduceSumSquare"):
    for version in (11, 13, 17, 18):
        by_onnxruntime, by_openvino = both(operator, version)
        print(f"{operator} {version}: onnxruntime {by_onnxruntime.round(2)}, OpenVINO {by_openvino.round(2)}")
        assert by_onnxruntime.shape == (4,)
        if operator in WRONG and version in (13, 17):
            assert by_openvino.size == 1
        else:
            assert np.allclose(by_onnxruntime, by_openvino, atol=1e-4)
assert both("ReduceL1", 17)[1] == ROWS.sum()
PYTHON
venv/bin/python try.py
# Seen: ReduceL1 17: onnxruntime [ 6.  3. 15.  3.], OpenVINO 27.0; ReduceL1 18: both [ 6.  3. 15.  3.]
