#!/usr/bin/env bash
# Guess: OpenVINO's `save_model`, which stores weights in half precision, leaves those in single precision that half cannot hold,
# as it does for a constant of which all values are beyond its greatest one, 65504.
# What happens: where more than a quarter of a constant's values fit, the others are cut to 65504, without a word. A network that
# takes the mean from temperature, humidity and air pressure in pascals is off by 35821 Pa once it was saved; the same network
# compiled without a file, or saved with `compress_to_fp16=False`, is right to the last bit.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet openvino==2026.4.1 onnx==1.23.2 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import openvino

MEANS = {"all three": [21.0, 45.0, 101325.0], "pressure alone": [101325.0]}
core = openvino.Core()


def error(means: list[float], **settings: bool) -> float:
    """By how much the greatest difference from the means is off after saving, of which none is before."""
    row = f"float[N,{len(means)}]"
    constant = f"float[1,{len(means)}] m = {{{', '.join(map(str, means))}}}"
    graph = onnx.parser.parse_graph(f"difference ({row} x) => ({row} y) <{constant}> {{ y = Sub(x, m) }}")
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), "m.onnx")
    model = openvino.convert_model("m.onnx")
    openvino.save_model(model, "m.xml", **settings)
    given = np.array([means], np.float32) + 1
    direct, saved = (core.compile_model(each, "CPU")(given)[0] for each in (model, "m.xml"))
    assert np.array_equal(direct, np.ones_like(given))
    return float(np.abs(saved - 1).max())


print("openvino", version("openvino"))
seen = {name: (error(means), error(means, compress_to_fp16=False)) for name, means in MEANS.items()}
for name, (half, single) in seen.items():
    print(f"{name}: off by {half} once saved, by {single} with compress_to_fp16=False")
assert seen == {"all three": (101325 - 65504, 0), "pressure alone": (0, 0)}
PYTHON
venv/bin/python try.py
# Seen: all three: off by 35821.0 once saved, by 0.0 with compress_to_fp16=False
