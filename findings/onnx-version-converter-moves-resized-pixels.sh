#!/usr/bin/env bash
# Guess: onnx.version_converter, which brings a model to a newer opset, keeps its answers, or refuses.
# What happens: Resize of opset 10 and Upsample of 9 take a pixel's place from its left upper corner; since 11 Resize takes
# its middle unless told otherwise, and the converter does not tell it. Linear resizing, the way masks and pyramids grow, is
# moved by up to half a pixel: of 0, 1, 2 doubled each odd one is another value. Hardmax with classes in axis 1 of a map has
# another meaning from 13 on too, where Softmax is converted rightly. Each converted model is valid.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, version_converter

ROW = np.array([[[[0, 1, 2]]]], np.float32)
DOUBLE = [numpy_helper.from_array(np.array([1, 1, 1, 2], np.float32), "scales")]


def answer(model: onnx.ModelProto) -> list[float]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.round(session.run(None, {"x": ROW})[0], 3).flatten().tolist()


def before_and_after(node: onnx.NodeProto, opset: int) -> tuple[list[float], list[float]]:
    """The answer of a model of one node in its own opset, and in 18."""
    weights = DOUBLE if "scales" in node.input else []
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, 1, size]) for name, size in
            (("x", 3), ("y", 6 if weights else 3)))  # fmt: skip
    graph = helper.make_graph([node], "one", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    converted = version_converter.convert_version(model, 18)
    for each in (model, converted):
        onnx.checker.check_model(each, full_check=True)
    return answer(model), answer(converted)


nodes = {
    "Resize 10, nearest": (helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest"), 10),
    "Resize 10, linear": (helper.make_node("Resize", ["x", "scales"], ["y"], mode="linear"), 10),
    "Upsample 9, linear": (helper.make_node("Upsample", ["x", "scales"], ["y"], mode="linear"), 9),
    "Softmax 12, axis 1": (helper.make_node("Softmax", ["x"], ["y"], axis=1), 12),
    "Hardmax 12, axis 1": (helper.make_node("Hardmax", ["x"], ["y"], axis=1), 12),
}
print("onnx", onnx.__version__, "onnxruntime", onnxruntime.__version__)
seen = {name: before_and_after(*each) for name, each in nodes.items()}
for name, (before, after) in seen.items():
    print(f"{name}: {before} becomes {after}")
changed = {name for name, (before, after) in seen.items() if before != after}
assert changed == {"Resize 10, linear", "Upsample 9, linear", "Hardmax 12, axis 1"}, changed
PYTHON
venv/bin/python try.py 2> /dev/null
# Seen: Resize 10, linear: [0.0, 0.5, 1.0, 1.5, 2.0, 2.0] becomes [0.0, 0.25, 0.75, 1.25, 1.75, 2.0]
