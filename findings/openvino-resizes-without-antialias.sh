#!/usr/bin/env bash
# Guess: OpenVINO shrinks a picture inside a network as onnxruntime and ONNX's own evaluator do, or refuses it: Resize with
# `antialias=1`, which torch writes for `interpolate(..., antialias=True)`, takes each pixel from all that fall together.
# What happens: the attribute is left out, as if it were 0. Where a picture is shrunk to a quarter, noise is three times as strong
# as the network's author has seen it, and fine stripes become broad ones, without a word. Without the attribute all agree.
set -euo pipefail
cd "$(mktemp -d)"
python3 -m venv venv
venv/bin/pip install --quiet openvino==2026.4.1 onnxruntime==1.32.0 onnx==1.23.2 numpy==2.4.6
cat > try.py <<'PYTHON'
from importlib.metadata import version

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import openvino

noise = np.random.default_rng(0).normal(0.5, 0.2, (1, 1, 64, 64)).astype(np.float32)
core = openvino.Core()


def shrunk(picture: np.ndarray, attributes: str) -> list[np.ndarray]:
    """16x16 pixels of OpenVINO, of onnxruntime and of ONNX's evaluator."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        shrink (float[1,1,64,64] x) => (float[1,1,16,16] y) <int64[4] size = {{1, 1, 16, 16}}>
        {{ y = Resize <{attributes}> (x, , , size) }}"""
    )
    onnx.save(model, "model.onnx")
    given = {"x": picture}
    return [
        core.compile_model("model.onnx", "CPU")(given)[0],
        onnxruntime.InferenceSession("model.onnx").run(None, given)[0],
        onnx.reference.ReferenceEvaluator(model).run(None, given)[0],
    ]


print("openvino", version("openvino"), "onnxruntime", version("onnxruntime"))
for mode in ("linear", "cubic"):
    plain, smooth = (shrunk(noise, f'mode = "{mode}", antialias = {value}') for value in (0, 1))
    spreads = [[round(float(each.std()), 3) for each in made] for made in (plain, smooth)]
    print(f"{mode}: noise of 0.2 is, by OpenVINO, onnxruntime, ONNX: {spreads[0]}, with antialias {spreads[1]}")
    assert np.allclose(plain[0], plain[1], atol=1e-3) and np.allclose(smooth[1], smooth[2], atol=1e-3)
    assert np.allclose(smooth[0], plain[0], atol=1e-3) and smooth[0].std() > 2 * smooth[1].std()
PYTHON
venv/bin/python try.py
# Seen: linear: noise of 0.2 is, by OpenVINO, onnxruntime, ONNX: [0.098, 0.098, 0.098], with antialias [0.098, 0.036, 0.036]
