"""Refusals of ONNX files from elsewhere."""

import contextlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from google.protobuf.internal.encoder import _VarintBytes
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from edge_client.models.graphs.checks import MAX_CONSTANT_BYTES, OPSET, GraphRefused, check_graph

LIMITS = {"max_bytes": 8 * 1024 * 1024, "max_nodes": 20}


def model() -> ModelProto:
    """Two operators, a constant, and a metadata entry."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["y"]), helper.make_node("Clip", ["y"], ["z"], name="clip")],
        "step",
        [value],
        [result],
        [onnx.numpy_helper.from_array(np.ones(4, np.float32), "c")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    helper.set_model_props(made, {"smallest-batch": "2"})
    return made


def inner(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "inner", [], [])


def sparse() -> onnx.SparseTensorProto:
    values = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("i", TensorProto.INT64, [1], [0]), [10**12])


def node(model: ModelProto, kind: str, **attributes: object) -> None:
    model.graph.node.append(helper.make_node(kind, ["x"], ["new"], **attributes))


def external(model: ModelProto) -> None:
    tensor = TensorProto(name="w", dims=[1], data_type=1, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    node(model, "Constant", value=tensor)


def unnamed_location(model: ModelProto) -> None:
    """A place outside, without the mark that the data is there."""
    model.graph.initializer[0].external_data.add(key="location", value="/etc/passwd")


REFUSED: dict[str, tuple[str, Callable[[ModelProto], object]]] = {
    "another domain": ("an operator of 'com.microsoft'", lambda m: node(m, "Gelu", domain="com.microsoft")),
    "in an inner graph": (
        "an operator of 'x.y'",
        lambda m: node(m, "If", then_branch=inner(helper.make_node("Own", [], ["o"], domain="x.y"))),
    ),
    "a second opset": ("opset 18 alone", lambda m: m.opset_import.add(domain="ai.onnx.ml", version=3)),
    "a later opset": ("opset 18 alone", lambda m: setattr(m.opset_import[0], "version", 19)),
    "no opset": ("opset 18 alone", lambda m: m.ClearField("opset_import")),
    "a function": ("opset 18 alone", lambda m: m.functions.add(name="Add")),
    "a training": ("opset 18 alone", lambda m: m.training_info.add()),
    "a branch": ("control flow: If", lambda m: node(m, "If", then_branch=inner(), else_branch=inner())),
    "a loop": ("control flow: Loop", lambda m: node(m, "Loop", body=inner())),
    "a scan": ("control flow: Scan", lambda m: node(m, "Scan", body=inner())),
    "a mapping": ("control flow: SequenceMap", lambda m: node(m, "SequenceMap")),
    "a graph in another operator": ("control flow: Relu", lambda m: node(m, "Relu", hidden=inner())),
    "graphs in another operator": ("control flow: Relu", lambda m: node(m, "Relu", hidden=[inner()])),
    "external data": ("data outside of it", external),
    "an external place": ("data outside of it", unnamed_location),
    "sparse constants": ("sparse", lambda m: m.graph.sparse_initializer.append(sparse())),
    "a sparse attribute": ("sparse", lambda m: node(m, "Constant", sparse_value=sparse())),
    "too many operators": ("at most 20", lambda m: [node(m, "Relu") for _ in range(19)]),
    "large constants": (
        "bytes of constants",
        lambda m: m.graph.initializer.add(raw_data=b"\0" * MAX_CONSTANT_BYTES),
    ),
    "a large attribute": (
        "bytes of constants",
        lambda m: node(m, "Constant", value=TensorProto(raw_data=b"\0" * MAX_CONSTANT_BYTES)),
    ),
}


def test_a_plain_graph_passes() -> None:
    checked = check_graph(model().SerializeToString(), **LIMITS)
    assert [node.op_type for node in checked.graph.node] == ["Add", "Clip"]


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_is_refused(case: str) -> None:
    why, change = REFUSED[case]
    changed = model()
    change(changed)
    with pytest.raises(GraphRefused, match=why):
        check_graph(changed.SerializeToString(), **LIMITS)


def test_too_many_bytes_are_not_read() -> None:
    data = model().SerializeToString()
    with pytest.raises(GraphRefused, match=f"{len(data)} bytes, at most {len(data) - 1}"):
        check_graph(data, max_bytes=len(data) - 1, max_nodes=20)
    check_graph(data, max_bytes=len(data), max_nodes=2)


@pytest.mark.parametrize("place", [b"clip", b"smallest-batch", b"batch"])
def test_a_text_that_is_none_is_refused(place: bytes) -> None:
    broken = model().SerializeToString().replace(place, b"\xff" * len(place), 1)
    with pytest.raises(GraphRefused, match="not UTF-8"):
        check_graph(broken, **LIMITS)


def test_deep_nesting_is_refused() -> None:
    # A graph in an attribute of a node of a graph, and so on: fields 6, 5 and 1.
    graph = b""
    for number in [6, 5, 1] * 60:
        graph = _field(number, graph)
    with pytest.raises(GraphRefused):
        check_graph(model().SerializeToString() + _field(7, graph), **LIMITS)


def _field(number: int, data: bytes) -> bytes:
    """A message in the field of this number."""
    return bytes([number << 3 | 2]) + _VarintBytes(len(data)) + data


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_bytes_are_read_or_refused(data: st.DataObject) -> None:
    given_bytes = bytearray(model().SerializeToString())
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(given_bytes) - 1))
        given_bytes[start : start + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(GraphRefused):
        check_graph(bytes(given_bytes), **LIMITS)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(GraphRefused):
        check_graph(data, **LIMITS)
