#!/usr/bin/env bash
# Guess: onnx.save with weights in a file of their own writes that file anew, so that a server which saves the model of each
# round into its folder has one of the model's size; or it refuses. And the model in memory is still whole.
# What happens: whether the file is there is looked up in the working directory, and only there it is refused. In any other
# folder the weights are appended to those of the last round: after ten rounds nine tenths of the file are never read. And
# they are taken out of the model in memory: saved elsewhere it is a file of under 1000 bytes that no runtime loads.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet onnx==1.23.2 numpy==2.4.6
cat > try.py <<'PYTHON'
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EXTERNAL = {"save_as_external_data": True, "location": "weights.bin"}


def network() -> onnx.ModelProto:
    """One matrix of 40000 bytes."""
    weights = numpy_helper.from_array(np.ones((1000, 10), np.float32), "weights")
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, width])] for name, width in (("x", 1000), ("y", 10))
    )
    product = helper.make_node("MatMul", ["x", "weights"], ["y"])
    return helper.make_model(helper.make_graph([product], "g", inputs, outputs, [weights]))


os.mkdir("run")
sizes = []
for _ in range(3):
    model = network()
    onnx.save(model, "run/model.onnx", **EXTERNAL)
    sizes.append(os.path.getsize("run/weights.bin"))
in_memory = len(model.graph.initializer[0].raw_data)
loaded = numpy_helper.to_array(onnx.load("run/model.onnx").graph.initializer[0])
print("onnx", onnx.__version__)
print("weights.bin after each round:", sizes, "bytes of weights left in memory:", in_memory)
assert sizes == [40_000, 80_000, 120_000] and in_memory == 0 and loaded.sum() == 10_000
os.mkdir("release")
onnx.save(model, "release/model.onnx")
print("saved once more, in another folder:", os.path.getsize("release/model.onnx"), "bytes")
onnx.save(network(), "model.onnx", **EXTERNAL)
try:
    onnx.save(network(), "model.onnx", **EXTERNAL)
    here = ""
except FileExistsError as error:
    here = str(error)
print("twice in the working directory:", here)
assert here == "External data file exists in weights.bin."
assert os.listdir("release") == ["model.onnx"] and os.path.getsize("release/model.onnx") < 1000
PYTHON
venv/bin/python try.py
# Seen: weights.bin after each round: [40000, 80000, 120000] bytes of weights left in memory: 0
