"""The working memory of a graph, counted by hand."""

import onnx
import pytest
from onnx import TensorProto, helper

from edge_client.training.step_graphs.drawing.step import convolution_buffer, working_memory

ROW = 40  # bytes of ten numbers, the values of an example


def values(text: str) -> list[onnx.ValueInfoProto]:
    shape: list[str | int] = ["batch", 10]
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in text.split()]


def graph(*nodes: str) -> onnx.GraphProto:
    """Nodes such as `Add a b -> c`, from the input `x` to the output `y`."""
    made = []
    for node in nodes:
        left, right = node.split(" -> ")
        kind, *inputs = left.split()
        made.append(helper.make_node(kind, inputs, right.split()))
    inner = " ".join(name for node in made for name in node.output if name != "y")
    return helper.make_graph(made, "g", values("x"), values("y"), value_info=values(inner))


@pytest.mark.parametrize(
    ("nodes", "at_once"),
    [
        pytest.param(("Sin x -> a", "Sin a -> b", "Sin b -> y"), 2, id="a value lives until it is read"),
        pytest.param(("Sin x -> a", "Relu a -> b", "Relu b -> y"), 1, id="in place"),
        pytest.param(("Sin x -> a", "Relu a -> b", "Add a b -> y"), 2, id="not in place if another reads it"),
        pytest.param(("Sin x -> a", "Reshape a -> b", "Add a b -> y"), 1, id="a view takes no memory"),
        pytest.param(("Sin x -> a", "Reshape a -> b", "Relu b -> c", "Sin c -> y"), 1, id="a view in place"),
        pytest.param(
            ("Sin x -> a", "Reshape a -> b", "Relu b -> c", "Add a c -> y"), 2, id="not in place under a view"
        ),
        pytest.param(("Relu x -> a", "Sin a -> y"), 1, id="an input is not overwritten"),
        pytest.param(("Sin x -> a", "Sin x -> b", "Sin a -> y"), 2, id="what nothing reads ends at once"),
    ],
)
def test_values_that_exist_at_once(nodes: tuple[str, ...], at_once: int) -> None:
    assert working_memory(graph(*nodes), "batch") == (0, at_once * ROW)


@pytest.mark.parametrize(
    ("inputs", "kernel", "outputs", "numbers"),
    [
        pytest.param((1, 32, 1, 28, 28), (32, 32, 1, 28, 28), (1, 32, 1, 5, 5), 25 * 32 * 784, id="all"),
        pytest.param((1, 32, 64, 16, 16), (64, 32, 1, 16, 16), (1, 64, 64, 5, 5), 128 * 128, id="a segment"),
        pytest.param((8, 32, 14, 14), (64, 32, 5, 5), (8, 64, 14, 14), 196 * 800, id="an image of several"),
        pytest.param((8, 2, 4, 4), (2, 1, 3, 3), (8, 2, 4, 4), 128 * 128, id="groups"),
    ],
)
def test_columns_of_a_convolution(
    inputs: tuple[int, ...], kernel: tuple[int, ...], outputs: tuple[int, ...], numbers: int
) -> None:
    assert convolution_buffer(inputs, kernel, outputs) == 4 * numbers
