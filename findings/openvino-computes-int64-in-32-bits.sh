#!/usr/bin/env bash
# Guess: a network with an input of int64, as of times in milliseconds since 1970, computes in int64 in OpenVINO, whose model and
# whose compiled input and output say int64; or it is refused.
# What happens: the processor's plugin computes in int32. A time is cut to its lower 32 bits: 1 ms later than a time of 2026 is
# a day in January 1970, and the time since the last reading, which is 1000, comes out as -1.4e9. Nothing is said. Numbers of
# float64 come out in float32, where a time in seconds is off by up to a minute.
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


def both(operator: str, times: np.ndarray, other: np.ndarray) -> list[np.ndarray]:
    """What onnxruntime and OpenVINO answer."""
    kind = helper.np_dtype_to_tensor_dtype(times.dtype)
    given, made = (helper.make_tensor_value_info(name, kind, ["rows"]) for name in ("times", "answer"))
    node = helper.make_node(operator, ["times", "other"], ["answer"])
    graph = helper.make_graph([node], "graph", [given], [made], [onnx.numpy_helper.from_array(other, "other")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    stored = model.SerializeToString()
    compiled = openvino.Core().compile_model(openvino.Core().read_model(io.BytesIO(stored)), "CPU")
    assert compiled.input(0).element_type.to_dtype() == compiled.output(0).element_type.to_dtype() == times.dtype
    return [onnxruntime.InferenceSession(stored).run(None, {"times": times})[0], compiled({"times": times})[0]]


NOW = 1_796_080_762_000
times = np.array([NOW, NOW + 1000], np.int64)
print("openvino", openvino.__version__, "onnxruntime", onnxruntime.__version__)
later = both("Add", times, np.array([1], np.int64))
since = both("Sub", times, np.array([NOW], np.int64))
seconds = both("Add", times / 1000, np.array([0.25]))
for name, answers in (("1 ms later", later), ("since", since), ("a quarter of a second later", seconds)):
    print(f"{name}: onnxruntime {answers[0]}, OpenVINO {answers[1]}")
assert (later[0] == times + 1).all() and (later[1] == (times + 1).astype(np.int32)).all()
assert (since[0] == [0, 1000]).all() and since[1].max() < -1e9
assert (seconds[0] == times / 1000 + 0.25).all() and np.abs(seconds[1] - seconds[0]).max() > 1
PYTHON
venv/bin/python try.py
# Seen: since: onnxruntime [0 1000], OpenVINO [-1363051376 -1363050376]
