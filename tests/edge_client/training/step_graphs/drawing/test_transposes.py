"""Products read transposed matrices as they are, and give the same numbers."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import helper

from edge_client.training.step_graphs.drawing.transposes import cancel_transposes, fuse_transposes

FLOAT = onnx.TensorProto.FLOAT


def model(*nodes: onnx.NodeProto, output: tuple[int, int]) -> onnx.ModelProto:
    """A model with inputs a [2, 3] and b [4, 3]."""
    inputs = [helper.make_tensor_value_info(name, FLOAT, (rows, 3)) for name, rows in (("a", 2), ("b", 4))]
    outputs = [helper.make_tensor_value_info("y", FLOAT, output)]
    graph = helper.make_graph([*nodes], "products", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def flip(name: str, to: str) -> onnx.NodeProto:
    return helper.make_node("Transpose", [name], [to], perm=[1, 0])


CASES = {
    "second factor": ([flip("b", "c"), helper.make_node("MatMul", ["a", "c"], ["y"])], (2, 4)),
    "twice": (
        [flip("b", "c"), flip("c", "d"), flip("d", "e"), helper.make_node("MatMul", ["a", "e"], ["y"])],
        (2, 4),
    ),
    "both factors": (
        [flip("b", "c"), flip("a", "d"), flip("d", "e"), helper.make_node("MatMul", ["e", "c"], ["y"])],
        (2, 4),
    ),
    "already transposed": (
        [flip("b", "c"), flip("c", "d"), helper.make_node("Gemm", ["a", "d"], ["y"], transB=1)],
        (2, 4),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_no_transpose_is_left(name: str) -> None:
    nodes, output = CASES[name]
    random = np.random.default_rng(0)
    given = {"a": random.random((2, 3), np.float32), "b": random.random((4, 3), np.float32)}
    found = model(*nodes, output=output)
    fuse_transposes(found.graph)
    onnx.checker.check_model(found, full_check=True)
    assert [node.op_type for node in found.graph.node] == ["Gemm"]
    (product,) = onnxruntime.InferenceSession(found.SerializeToString()).run(None, given)
    np.testing.assert_allclose(product, given["a"] @ given["b"].T, rtol=1e-6)


def test_a_transpose_that_something_else_reads_stays() -> None:
    nodes = [
        flip("b", "c"),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("MatMul", ["a", "d"], ["y"]),
    ]
    found = model(*nodes, output=(2, 4))
    fuse_transposes(found.graph)
    assert [node.op_type for node in found.graph.node] == ["Transpose", "Relu", "MatMul"]


def test_transposes_that_undo_each_other_go_even_before_an_output() -> None:
    first = helper.make_node("Transpose", ["x"], ["c"], perm=[1, 2, 0])
    second = helper.make_node("Transpose", ["c"], ["y"], perm=[2, 0, 1])
    nodes = [helper.make_node("Relu", ["a"], ["x"]), first, second]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "pair", [value("a", FLOAT, (2, 3, 4))], [value("y", FLOAT, (2, 3, 4))])
    model = ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))
    cancel_transposes(model.graph)
    assert [node.op_type for node in model.graph] == ["Relu", "Transpose", "Identity"]
    assert model.graph[2].inputs[0] is model.graph[0].outputs[0]
