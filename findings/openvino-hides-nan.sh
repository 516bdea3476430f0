#!/usr/bin/env bash
# Guess: a network with a weight that is not a number, as diverged training leaves, answers NaN on every runtime, so that
# whoever looks at the scores sees that it is broken.
# What happens: OpenVINO's Relu on x86 makes 0 of NaN. The network goes on without that channel and answers with scores that
# add up to 1. onnxruntime answers NaN.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
first, second = (rng.standard_normal(shape, dtype=np.float32) for shape in ((4, 8), (8, 3)))
first[0, 0] = np.nan
nodes = [
    helper.make_node("MatMul", ["x", "first"], ["hidden"]),
    helper.make_node("Relu", ["hidden"], ["active"]),
    helper.make_node("MatMul", ["active", "second"], ["scores"]),
    helper.make_node("Softmax", ["scores"], ["y"], axis=1),
]
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in (("x", 4), ("y", 3)))
weights = [numpy_helper.from_array(first, "first"), numpy_helper.from_array(second, "second")]
graph = helper.make_graph(nodes, "network", [x], [y], weights)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), "network.onnx")
given = np.ones((1, 4), np.float32)
session = onnxruntime.InferenceSession("network.onnx", providers=["CPUExecutionProvider"])
by_onnxruntime = session.run(None, {"x": given})[0]
by_openvino = openvino.Core().compile_model("network.onnx", "CPU")([given])[0]
print("onnxruntime", onnxruntime.__version__, by_onnxruntime)
print("OpenVINO", openvino.__version__, by_openvino)
assert np.isnan(by_onnxruntime).all()
assert np.isfinite(by_openvino).all() and abs(by_openvino.sum() - 1) < 1e-2
PYTHON
venv/bin/python try.py
