#!/usr/bin/env bash
# Guess: onnxoptimizer, whose passes are to leave what a network answers, keeps a Pad of zeros before a MaxPool, as a network with
# `ZeroPad2d` or one from another framework has it, or merges it only where the answer stays.
# What happens: the pass `fuse_pad_into_pool`, which is on by default, turns the zeros into the padding of MaxPool, which is never
# the largest. Where all values are below 0 at the edge, the answer there is another one: -1.1 instead of 0. Before an
# AveragePool the zeros count still. onnxsim, which has its own copy of these passes, leaves the Pad.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnxoptimizer==0.4.2 onnxsim==0.8.1 onnx==1.23.2 onnxruntime==1.32.0 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnxoptimizer
import onnxruntime
import onnxsim
from onnx import helper

PICTURE = -1 - np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4) / 10


def network(pool: str) -> onnx.ModelProto:
    """A ring of zeros, then a pool of 3 x 3."""
    shapes = {"picture": [1, 1, 4, 4], "answer": [1, 1, 4, 4]}
    given, made = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items())
    widths = onnx.numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "widths")
    pad = helper.make_node("Pad", ["picture", "widths"], ["padded"])
    nodes = [pad, helper.make_node(pool, ["padded"], ["answer"], kernel_shape=[3, 3])]
    graph = helper.make_graph(nodes, "graph", [given], [made], [widths])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def answer(model: onnx.ModelProto) -> np.ndarray:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"picture": PICTURE})[0]


print("onnxoptimizer", version("onnxoptimizer"), "onnxsim", version("onnxsim"))
for pool in ("MaxPool", "AveragePool"):
    plain = network(pool)
    optimized, simplified = onnxoptimizer.optimize(plain), onnxsim.simplify(plain)[0]
    print(f"{pool}, first row: {answer(plain)[0, 0, 0]}; onnxoptimizer {answer(optimized)[0, 0, 0]},"
          f" nodes {[node.op_type for node in optimized.graph.node]}; onnxsim {answer(simplified)[0, 0, 0]}")  # fmt: skip
    assert np.allclose(answer(plain), answer(simplified))
    assert np.allclose(answer(plain), answer(optimized)) == (pool == "AveragePool")
    assert np.allclose(answer(plain)[..., 1:-1, 1:-1], answer(optimized)[..., 1:-1, 1:-1])
assert answer(network("MaxPool"))[0, 0, 0, 0] == 0 and answer(onnxoptimizer.optimize(network("MaxPool")))[0, 0, 0, 0] == -1
PYTHON
venv/bin/python try.py
# Seen: MaxPool, first row: [0. 0. 0. 0.]; onnxoptimizer [-1.  -1.  -1.1 -1.2]; onnxsim [0. 0. 0. 0.]
