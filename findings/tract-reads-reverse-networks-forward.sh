#!/usr/bin/env bash
# Guess: tract, which runs on boards without an onnxruntime, computes a GRU, LSTM or RNN whose direction is `reverse`, or with
# a clip or other activations of its gates, as onnxruntime does, or it refuses what it lacks, as it does with
# sequences of unlike lengths.
# What happens: a network that reads from the end is read from the start, `clip` and the activations of a GRU are ignored, and
# Celu with an alpha of 2 gives half of what is below 0. Nothing is said. A network of both directions is right in each of them.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet tract==0.23.9 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxruntime
import tract
from onnx import helper

STEPS, INPUTS, HIDDEN = 6, 3, 4
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
rng = np.random.default_rng(0)
READINGS = rng.normal(size=(STEPS, 1, INPUTS)).astype(np.float32)


def answers(node: onnx.NodeProto, weights: dict[str, np.ndarray], readings: np.ndarray = READINGS) -> list[np.ndarray]:
    """What onnxruntime and tract answer."""
    given = helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, readings.shape)
    made = helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, None)
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = helper.make_model(helper.make_graph([node], "graph", [given], [made], stored),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=9)  # fmt: skip
    model = onnx.shape_inference.infer_shapes(model)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, "network.onnx")
    by_tract = tract.onnx().load("network.onnx").into_model().into_runnable().run([readings])[0].to_numpy()
    return [onnxruntime.InferenceSession("network.onnx").run(None, {"X": readings})[0], by_tract]


def last_states(kind: str, readings: np.ndarray = READINGS, **settings: object) -> list[np.ndarray]:
    ways, sizes = 1 + (settings.get("direction") == "bidirectional"), (GATES[kind] * HIDDEN, INPUTS, HIDDEN)
    rng = np.random.default_rng(1)
    weights = {name: rng.normal(size=(ways, sizes[0], size)).astype(np.float32) for name, size in zip("WR", sizes[1:])}
    return answers(helper.make_node(kind, ["X", "W", "R"], ["", "Y"], hidden_size=HIDDEN, **settings), weights, readings)


def apart(both: list[np.ndarray]) -> float:
    return round(float(np.abs(both[0] - both[1]).max()), 3)


print("tract", version("tract"), "onnxruntime", onnxruntime.__version__)
for kind in GATES:
    seen = {way: last_states(kind, direction=way) for way in ("forward", "reverse", "bidirectional")}
    print(kind, "differs by", {way: apart(both) for way, both in seen.items()})
    assert apart(seen["forward"]) == apart(seen["bidirectional"]) == 0 and apart(seen["reverse"]) > 0.1
    assert np.allclose(seen["reverse"][1], seen["forward"][1])
clipped, relu = last_states("GRU", clip=0.3), last_states("GRU", activations=["Sigmoid", "Relu"])
print("a GRU with clip differs by", apart(clipped), "with Relu by", apart(relu))
assert apart(clipped) > 0.1 and apart(relu) > 0.1 and np.allclose(clipped[1], relu[1])
celu = answers(helper.make_node("Celu", ["X"], ["Y"], alpha=2.0), {}, np.array([-4, -1, 1], np.float32))
print("Celu of -4, -1, 1 with alpha 2: onnxruntime", celu[0], "tract", celu[1])
assert np.allclose(celu[0], 2 * np.expm1([-2, -0.5, 0]) + [0, 0, 1], atol=1e-5)
assert np.allclose(celu[1][:2] * 2, celu[0][:2], atol=1e-5) and celu[1][2] == 1
PYTHON
venv/bin/python try.py
# Seen: GRU differs by forward 0.0, reverse 0.994, bidirectional 0.0; a GRU with clip differs by 0.624 with Relu by 0.987
