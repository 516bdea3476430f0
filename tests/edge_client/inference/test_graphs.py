"""Graphs: a network without weights, exported once and filled with weights anywhere."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import ModelProto
from torch import Tensor, nn

from edge_client.inference.export import graph_export
from edge_client.inference.export.graph_export import draw_graph, fill, keep_graph, known_graphs
from edge_client.inference.export.onnx import ExportRefused, ExportReport, export_onnx, find_graph
from edge_client.models.graphs.filling import MAX_GRAPH_BYTES
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import compact
from schemas.submodel import SubModelSpec
from schemas.values import Preprocessing
from tests.slow import mark_slow

SHAPE = (1, 8, 8)


class Net(nn.Module):
    """A network with convolutions in groups, a norm and a flattening, which differ between sub-models."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, bias=False)
        self.depth_wise = nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.in_pairs = nn.Conv2d(8, 8, 1, groups=4, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.in_pairs(self.depth_wise(self.conv(x)))))
        return self.linear(torch.flatten(x, 1))


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    net = Net()
    nn.init.normal_(net.norm.running_mean)
    nn.init.uniform_(net.norm.running_var, 0.5, 2.0)
    return net.eval()


def narrow(module: nn.Module) -> nn.Module:
    """Six of the eight channels."""
    channel_map = trace_channels(module, SHAPE)
    kept = {name: 6 for name, group in channel_map.groups.items() if group.channels == 8}
    assert kept
    return compact(module, SubModelSpec(kept=kept), channel_map)


@pytest.fixture(scope="module")
def graph() -> bytes:
    return draw_graph(network(), SHAPE)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, graph: bytes) -> list[str]:
    """An empty cache, and a quick exporter that records its calls."""
    asked: list[str] = []

    def quick(module: nn.Module, input_shape: tuple[int, ...]) -> bytes:
        asked.append(type(module).__name__)
        return graph

    monkeypatch.setenv("EDGE_GRAPHS", str(tmp_path / "graphs"))
    monkeypatch.setattr(graph_export, "draw_graph", quick)
    return asked


def export(module: nn.Module, path: Path, *graphs: bytes) -> ExportReport:
    return export_onnx(
        module, path, input_shape=SHAPE, preprocessing=Preprocessing(scale=1.0), provenance={}, graphs=graphs
    )


def test_a_graph_holds_no_weights(graph: bytes) -> None:
    model = onnx.load_from_string(graph)
    # The one constant is the shape [0, -1] that flattens any input.
    assert [onnx.numpy_helper.to_array(tensor).tolist() for tensor in model.graph.initializer] == [[0, -1]]
    weights = [value for value in model.graph.input if value.name != "input"]
    # Three convolutions, four tensors of the norm, weight and bias of the linear layer; of any shape.
    assert len(weights) == 9
    assert not any(axis.dim_value for weight in weights for axis in weight.type.tensor_type.shape.dim)
    assert len(graph) < 4000


@pytest.mark.parametrize("make", [network, lambda: network(1), lambda: narrow(network())])
def test_one_graph_serves_any_weights_and_any_width(
    graph: bytes, drawn: list[str], tmp_path: Path, make: Callable[[], nn.Module]
) -> None:
    module = make()
    report = export(module, tmp_path / "model.onnx", graph)
    assert drawn == []
    inputs = np.random.default_rng(5).standard_normal((4, *SHAPE), dtype=np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(inputs)).numpy()
    session = onnxruntime.InferenceSession(report.path)
    np.testing.assert_allclose(session.run(["logits"], {"input": inputs})[0], expected, atol=1e-5)


def test_constant_operations_are_folded(graph: bytes, drawn: list[str], tmp_path: Path) -> None:
    model = onnx.load(export(network(), tmp_path / "model.onnx", graph).path)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Conv", "Conv", "Relu", "Reshape", "Gemm"]
    assert [value.name for value in model.graph.input] == ["input"]
    assert not model.metadata_props[0].key.startswith("depth")


def changed(change: Callable[[ModelProto], object]) -> Callable[[bytes], bytes]:
    def make(graph: bytes) -> bytes:
        model = onnx.load_from_string(graph)
        change(model)
        return model.SerializeToString()

    return make


def _put_outside(model: ModelProto) -> None:
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "/etc/passwd")
    model.graph.initializer[0].ClearField("raw_data")


def _hide_a_stranger(model: ModelProto) -> None:
    """Add a custom operator within a branch."""
    inner = onnx.helper.make_graph([onnx.helper.make_node("Own", [], ["y"], domain="x.y")], "inner", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["input"], ["y"], then_branch=inner))


def _rename_a_weight(model: ModelProto) -> None:
    model.graph.input[1].name = model.graph.node[0].input[1] = "other"


def _transpose_a_layer(model: ModelProto) -> None:
    """Transpose the layer's weight, which fits no network."""
    (layer,) = [node for node in model.graph.node if node.op_type == "Gemm"]
    (turned,) = [attribute for attribute in layer.attribute if attribute.name == "transB"]
    turned.i = 0


HOSTILE = {
    "is not valid ONNX": lambda graph: b"\xff" * 100,
    "an operator of 'x.y'": changed(_hide_a_stranger),
    "data outside": changed(_put_outside),
    "does not take": changed(lambda m: m.graph.input[0].type.tensor_type.shape.dim[2].Clear()),
    "does not give": changed(lambda m: setattr(m.graph.output[0], "name", "other")),
    "which is not a weight": changed(_rename_a_weight),
    "of another type": changed(lambda m: setattr(m.graph.input[1].type.tensor_type, "elem_type", 11)),
    "opset 18 alone": changed(lambda m: m.opset_import.append(onnx.helper.make_opsetid("x.y", 1))),
    "onnxruntime cannot run": changed(_transpose_a_layer),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_an_invalid_graph_is_not_used(graph: bytes, drawn: list[str], tmp_path: Path, why: str) -> None:
    bad = HOSTILE[why](graph)
    with pytest.raises(ExportRefused, match=why):
        fill(bad, network(), SHAPE)
    assert export(network(), tmp_path / "model.onnx", bad).sha256 == (
        export(network(), tmp_path / "again.onnx", graph).sha256
    )
    assert drawn == ["Net"]


def test_a_graph_of_another_network_is_not_used(graph: bytes, drawn: list[str], tmp_path: Path) -> None:
    model = onnx.load_from_string(graph)
    (relu,) = [node for node in model.graph.node if node.op_type == "Relu"]
    relu.op_type = "Tanh"
    export(network(), tmp_path / "model.onnx", model.SerializeToString())
    assert drawn == ["Net"]
    # The graph is not used either if all outputs are too small to differ much.
    small = network()
    nn.init.constant_(small.linear.weight, 1e-8)
    nn.init.zeros_(small.linear.bias)
    export(small, tmp_path / "model.onnx", model.SerializeToString())
    assert list(tmp_path.iterdir())
    assert list(known_graphs(small, SHAPE)) == [graph]


def test_a_graph_that_is_too_large_is_not_read(graph: bytes, drawn: list[str], tmp_path: Path) -> None:
    export(network(), tmp_path / "model.onnx", graph + b"\0" * MAX_GRAPH_BYTES)
    assert drawn == ["Net"]


def test_a_network_is_exported_once_per_machine(drawn: list[str], tmp_path: Path, graph: bytes) -> None:
    assert find_graph(network(), SHAPE) == graph
    assert find_graph(narrow(network(1)), SHAPE) == graph
    assert drawn == ["Net"]


def test_without_a_cache_graphs_are_exported_each_time(
    drawn: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("EDGE_GRAPHS", str(tmp_path / "file"))
    for _ in range(2):
        export(network(), tmp_path / "model.onnx")
    assert drawn == ["Net", "Net"]


def test_known_graphs_are_those_of_the_same_network(drawn: list[str]) -> None:
    keep_graph(network(), SHAPE, b"one")
    keep_graph(network(), SHAPE, b"two")
    assert set(known_graphs(network(), SHAPE)) == {b"one", b"two"}
    assert list(known_graphs(nn.Sequential(nn.Linear(1, 1)), SHAPE)) == []


EXPORT = """
import sys
from pathlib import Path
from tests.edge_client.inference.test_graphs import SHAPE, export, network
print(export(network(), Path(sys.argv[1]) / "model.onnx", Path(sys.argv[2]).read_bytes()).sha256)
print(*sys.modules)
"""


@mark_slow
def test_with_a_given_graph_no_exporter_is_needed(graph: bytes, drawn: list[str], tmp_path: Path) -> None:
    (tmp_path / "graph").write_bytes(graph)
    command = [sys.executable, "-c", EXPORT, tmp_path, tmp_path / "graph"]
    printed = subprocess.check_output(command, text=True)
    digest, modules = printed.splitlines()
    # The same bytes in another process.
    assert digest == export(network(), tmp_path / "again.onnx", graph).sha256
    assert "torch" in modules.split()
    assert not {"onnxscript", "torch._dynamo"} & set(modules.split())
