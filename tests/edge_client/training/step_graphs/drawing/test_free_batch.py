"""Whatever depends on the number of traced examples depends on the batch afterwards."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import parser
from torch import Tensor, nn

from edge_client.training.step_graphs.drawing.export import DrawingRefused
from edge_client.training.step_graphs.drawing.step import draw_step
from edge_client.training.step_graphs.drawing.transposes import (
    PRIMES,
    free_axes,
    free_initializers,
    number_of_examples,
)
from tests.edge_client.networks import Net

TRACED = 1009
GRAPHS = {
    "a shape": """y = Reshape(inputs, shape)""",
    "a shape with an unknown size": """y = Reshape(inputs, open)""",
    "a shape that something else reads too": """z = Reshape(inputs, shape) y = Expand(z, shape)""",
    "a divisor": """z = Div(inputs, divisor) y = Reshape(z, shape)""",
}


def freed(body: str) -> bytes:
    """A model with inputs [batch, 2, 3] and y [batch, 6] that was made for `TRACED` examples."""
    text = f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[{TRACED}, 2, 3] inputs) => (float[{TRACED}, 6] y)
        <int64[2] shape = {{{TRACED}, 6}}, int64[2] open = {{{TRACED}, -1}},
         float divisor = {{{TRACED * 3}}}> {{
            {body}
        }}"""
    model = ir.from_proto(parser.parse_model(text))
    free_axes(model.graph, TRACED, "batch")
    free_initializers(model.graph, TRACED, "inputs")
    model.graph.outputs[0].shape = ir.Shape(["batch", 6])
    data: bytes = ir.to_proto(model).SerializeToString()
    return data


@pytest.mark.parametrize("examples", [1, 4, TRACED])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_works_for_any_number_of_examples(name: str, examples: int) -> None:
    given = np.random.default_rng(0).random((examples, 2, 3), np.float32)
    (found,) = onnxruntime.InferenceSession(freed(GRAPHS[name])).run(None, {"inputs": given})
    expected: NDArray[np.float32] = given.reshape(examples, 6)
    np.testing.assert_allclose(found, expected / (3 * examples) if "divisor" in name else expected, rtol=1e-6)


def test_axes_name_their_multiple_of_the_batch() -> None:
    value = ir.val("inputs", ir.DataType.FLOAT, [TRACED, 64 * TRACED, 5, 0])
    free_axes(ir.Graph([value], [], nodes=[]), TRACED, "batch")
    assert value.shape is not None
    assert [str(size) for size in value.shape] == ["batch", "64*batch", "5", "0"]


def test_no_size_of_the_network_is_a_multiple_of_the_traced_number() -> None:
    assert number_of_examples([3, 32]) == PRIMES[0]
    assert number_of_examples([0, 3, 2 * PRIMES[0]]) == PRIMES[1]


def network(between: Callable[[Tensor], Tensor]) -> Net:
    layers = {"first": nn.Linear(5, 4), "last": nn.Linear(4, 3)}
    return Net(lambda net, x: net.last(between(net.first(x))), **layers)


def test_a_network_may_divide_by_the_number_of_examples() -> None:
    # torch divides the gradient of a mean by it.
    assert draw_step(network(lambda found: torch.relu(found - found.mean(0))), (5,))


@pytest.mark.filterwarnings("ignore:var")
def test_a_network_with_other_arithmetic_on_that_number_is_refused() -> None:
    # One less than the examples is a number in the gradient of a deviation.
    whitened = network(lambda found: (found - found.mean(0)) / found.var(0).sqrt())
    with pytest.raises(DrawingRefused, match="differs from torch"):
        draw_step(whitened, (5,))
