#!/usr/bin/env bash
# Guess: the conversion to half precision of onnxconverter-common keeps a constant that half precision holds, which goes to 65504: a
# network that divides samples of 16 bits by 32768 does so after it.
# What happens: by default each constant beyond 10,000 becomes 10,000 (`max_finite_val`), so that the recording is 3.3 times as loud
# as in training and ranges to 3.3 instead of 1. A warning of Python names the number, the conversion goes on, and the checker and
# the runtime take the file. The copy of this conversion in onnxruntime's own tools has 65504 there and keeps 32768.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnxconverter-common==1.16.0 onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
cat > try.py <<'PYTHON'
import warnings
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxconverter_common import float16

warnings.simplefilter("ignore")
SAMPLES = np.float32([[-32768, 100, 16384, 32752]])


def scaled(by: float, **options: float) -> np.ndarray:
    """What a network that divides by a constant answers in half precision."""
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    divisor = numpy_helper.from_array(np.float32(by), "by")
    graph = helper.make_graph([helper.make_node("Div", ["x", "by"], ["y"])], "scale", sides[:1], sides[1:], [divisor])
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    half = float16.convert_float_to_float16(network, keep_io_types=True, **options)
    onnx.checker.check_model(half)
    (answer,) = onnxruntime.InferenceSession(half.SerializeToString()).run(None, {"x": SAMPLES})
    return answer


print("onnxconverter-common", version("onnxconverter-common"))
for by, options, factor in ((8192, {}, 1), (32768, {}, 3.2768), (32768, {"max_finite_val": 65504.0}, 1)):
    answer, should = scaled(by, **options), SAMPLES / by
    print(f"divided by {by} {options}: {answer.round(3).tolist()}, should be {should.round(3).tolist()}")
    assert np.allclose(answer, should * factor, rtol=2e-3)
PYTHON
venv/bin/python try.py
# Seen: divided by 32768 {}: [-3.277, 0.01, 1.638, 3.275], should be [-1.0, 0.003, 0.5, 1.0]
