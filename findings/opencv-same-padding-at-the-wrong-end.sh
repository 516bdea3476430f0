#!/usr/bin/env bash
# Guess: OpenCV's network module pads a convolution or a pooling of ONNX's `auto_pad` as ONNX defines it, or refuses it: where
# an odd number of rows is missing, SAME_UPPER (what TensorFlow pads) puts the one more at the end, SAME_LOWER at the start.
# What happens: OpenCV 5.0 pads SAME_UPPER at the start, as if it were SAME_LOWER; OpenCV 4.14, and 5.0 with ENGINE_CLASSIC,
# pad SAME_LOWER at the end. Every layer of stride 2 on an even size, as MobileNets begin with, sees the picture shifted by a
# pixel, without an error. onnxruntime does both as defined.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import cv2
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

PICTURE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
PADDED_AT = {"SAME_UPPER": ((0, 1), (0, 1)), "SAME_LOWER": ((1, 0), (1, 0))}


def sums(where: str) -> list[float]:
    """The sums of 3x3 pixels at stride 2, written out."""
    padded = np.pad(PICTURE[0, 0], PADDED_AT[where])
    return [float(padded[row : row + 3, column : column + 3].sum()) for row in (0, 2) for column in (0, 2)]


print("OpenCV", cv2.__version__, "onnxruntime", onnxruntime.__version__)
as_padded_at = {values: where for where in PADDED_AT for values in [tuple(sums(where))]}
seen = {}
for asked in PADDED_AT:
    node = helper.make_node("Conv", ["x", "w"], ["y"], kernel_shape=[3, 3], strides=[2, 2], auto_pad=asked)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1, side, side]) for name, side in (("x", 4), ("y", 2)))
    graph = helper.make_graph([node], "one", [x], [y], [numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "one.onnx")
    session = onnxruntime.InferenceSession("one.onnx", providers=["CPUExecutionProvider"])
    network = cv2.dnn.readNetFromONNX("one.onnx")
    network.setInput(PICTURE)
    answers = {"onnxruntime": session.run(None, {"x": PICTURE})[0], "OpenCV": network.forward()}
    for runtime, answer in answers.items():
        values = tuple(map(float, answer.ravel()))
        seen[runtime, asked] = as_padded_at[values]
        print(f"{runtime}: {asked} {values} is padded as {seen[runtime, asked]}")
    assert seen["onnxruntime", asked] == asked
wrong = "SAME_UPPER" if cv2.__version__.startswith("5") else "SAME_LOWER"
assert all((seen["OpenCV", asked] == asked) == (asked != wrong) for asked in PADDED_AT)
PYTHON
for version in 5.0.0.93 4.14.0.94; do
    venv/bin/pip install --quiet "opencv-python-headless==$version"
    venv/bin/python try.py 2> /dev/null
done
# Seen: 5.0.0: SAME_UPPER is padded as SAME_LOWER; 4.14.0: SAME_LOWER is padded as SAME_UPPER
