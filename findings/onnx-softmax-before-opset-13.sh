#!/usr/bin/env bash
# Guess: all runtimes give the same answer for Softmax of a model of ONNX opset 12, which every converter wrote for years.
# What happens: up to opset 12 the axis is where the tensor is flattened to two dimensions, so that the shares of all classes
# and pixels add up to 1; since 13 it is the one axis that is summed. onnxruntime goes by the model's opset. OpenVINO,
# OpenCV and ONNX's own reference evaluator take the new meaning for the old models: of a map of 2 classes by 3 pixels
# each says 1/2 where onnxruntime says 1/6, and a threshold on the score finds all or nothing. In the last axis both are one.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnx==1.23.2 onnxruntime==1.31.1 openvino==2026.4.1 opencv-python-headless==5.0.0.93 numpy==2.4.6
cat > try.py <<'PYTHON'
import cv2
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

SCORES = np.zeros((1, 2, 1, 3), np.float32)  # 2 classes of 3 pixels, all alike


def shares(opset: int) -> dict[str, float]:
    """The share of each class at each pixel by Softmax of axis 1, the classes."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, SCORES.shape) for name in "xy")
    graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"], axis=1)], "one", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "one.onnx")
    session = onnxruntime.InferenceSession("one.onnx", providers=["CPUExecutionProvider"])
    compiled = openvino.Core().compile_model("one.onnx", "CPU")
    network = cv2.dnn.readNetFromONNX("one.onnx")
    network.setInput(SCORES)
    answers = {
        "onnxruntime": session.run(None, {"x": SCORES})[0],
        "onnx.reference": ReferenceEvaluator(model).run(None, {"x": SCORES})[0],
        "OpenVINO": compiled([SCORES])[0],
        "OpenCV": network.forward(),
    }
    assert all(np.ptp(answer) == 0 for answer in answers.values())
    return {name: round(float(answer.flat[0]), 4) for name, answer in answers.items()}


print("onnxruntime", onnxruntime.__version__, "onnx", onnx.__version__)
print("OpenVINO", openvino.__version__, "OpenCV", cv2.__version__)
seen = {opset: shares(opset) for opset in (12, 13)}
for opset, answers in seen.items():
    print("opset", opset, answers)
assert set(seen[13].values()) == {0.5}
assert seen[12] == {name: 0.1667 if name == "onnxruntime" else 0.5 for name in seen[12]}
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: opset 12 {onnxruntime: 0.1667, onnx.reference: 0.5, OpenVINO: 0.5, OpenCV: 0.5}; opset 13: all 0.5
