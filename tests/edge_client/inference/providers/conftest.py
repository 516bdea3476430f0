"""A model that takes a millisecond, and an onnxruntime that offers stand-ins for providers."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge_client.inference.providers import trial
from tests.edge_client.inference.providers import stand_in

ROOT = Path(__file__).parents[4]
SHADOW = f"""
import sys
sys.modules.pop(__name__)
sys.path.remove(PLACE)
import onnxruntime
from {stand_in.__name__} import make_opener, offered
onnxruntime.get_available_providers = offered
onnxruntime.InferenceSession = make_opener(onnxruntime.InferenceSession)
"""

Offer = Callable[..., None]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Make onnxruntime offer these providers, here and in the processes of trials."""
    package = tmp_path / "shadow" / "onnxruntime"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(SHADOW.replace("PLACE", repr(str(package.parent))))
    monkeypatch.setenv("PYTHONPATH", f"{package.parent}:{ROOT}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(stand_in.FLAG, str(tmp_path / "device-gone"))
    monkeypatch.setattr(trial, "TOTAL_S", 200.0)
    monkeypatch.setattr(onnxruntime, "get_available_providers", stand_in.offered)
    opener = stand_in.make_opener(onnxruntime.InferenceSession)
    monkeypatch.setattr(onnxruntime, "InferenceSession", opener)

    def offered(*names: str) -> None:
        monkeypatch.setenv(stand_in.OFFERED, ",".join(names))

    return offered


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two convolutions of [3, 32, 32] with 26 million multiplications, and three classes."""
    rng, nodes, weights = np.random.default_rng(0), [], []
    for number, (before, after) in enumerate(((3, 32), (32, 32))):
        given, weight = ("input", "wide")[number], f"w{number}"
        shape = (after, before, 5, 5)
        weights.append(numpy_helper.from_array(rng.standard_normal(shape, dtype=np.float32) / 20, weight))
        nodes.append(helper.make_node("Conv", [given, weight], [("wide", "deep")[number]], pads=[2] * 4))
    weights.append(numpy_helper.from_array(rng.standard_normal((32, 3), dtype=np.float32), "last"))
    nodes += [
        helper.make_node("GlobalAveragePool", ["deep"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "last"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    helper.set_model_props(made, {"class_names": '["ant", "bee", "cat"]'})
    path = tmp_path / "model.onnx"
    onnx.save(made, str(path))
    return path
