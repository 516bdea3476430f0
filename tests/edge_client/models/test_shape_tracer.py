"""Forward methods that decide by shapes are traced; those that decide by values are not."""

import pytest
import torch
from torch import nn
from torch.fx.proxy import TraceError
from torch.nn import functional

from edge_client.models.shape_tracer import ShapeTracer, condition
from edge_client.pruning.channel_graph.trace import trace_channels
from tests.edge_client.networks import INPUT, Net
from tests.edge_client.pruning.channel_graph.test_trace import conv


def pads_if_needed(m, x):
    height, width = x.shape[-2:]
    if height % 3 != 0 or width % 3:
        x = functional.pad(x, (0, -width % 3, 0, -height % 3))
    return m.out(m.a(x))


def loops_over_axes(m, x):
    y = m.a(x)
    for place in range(y.size(2)):
        y = y + m.a(x)[:, :, place : place + 1] / len(y.shape)
    return m.out(y)


def asks_for_kinds(m, x):
    if x.device.type == "meta" or x.dtype != torch.float32 or float(x.shape[2]) < 1:
        return x
    return m.out(m.a(x))


def splits(m, x):
    return m.out(sum(m.a(part) for part in x.split(4, dim=2)))


@pytest.mark.parametrize("forward", [pads_if_needed, loops_over_axes, asks_for_kinds, splits])
def test_a_method_that_decides_by_the_lengths_of_axes_is_traced(forward):
    assert trace_channels(Net(forward, a=conv(3, 4), out=conv(4, 2)), INPUT).groups["a"].channels == 4


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: m.out(m.a(x)) if m.a(x).shape[1] == 4 else x,
        lambda m, x: m.out(m.a(x)) / int(m.a(x).size(1)),
        lambda m, x: sum(m.out(m.a(x)) for _ in range(m.a(x).shape[1])),
    ],
)
def test_a_method_that_decides_by_the_number_of_channels_keeps_them_whole(forward):
    assert not trace_channels(Net(forward, a=conv(3, 4), out=conv(4, 2)), INPUT).groups


def by_item(x):
    return x if x.max().item() > 0 else -x


def by_tensor(x):
    return x if x.sum() > 0 else -x


def by_list(x):
    return x * len(x.nonzero().tolist())


def by_mask(x):
    return x if x[x > 0].shape[0] else -x


def by_batch(x):
    return torch.stack([2 * each for each in x])


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, twice=None, *, sign=1):
        y = self.function(x)
        return y * sign if twice is None else 2 * y


@pytest.mark.parametrize("function", [by_item, by_tensor, by_list, by_mask, by_batch])
def test_a_method_that_decides_by_values_or_examples_is_refused(function):
    with pytest.raises(TraceError):
        ShapeTracer(torch.ones(2, 3)).graph_of(Function(function))


def test_the_graph_has_shapes_the_defaults_of_arguments_and_each_condition():
    graph = ShapeTracer(torch.ones(2, 3)).graph_of(Function(lambda x: x.T if x.shape[1] > 2 else x))
    assert [node.meta["shape"] for node in graph.nodes if "shape" in node.meta] == [(2, 3), (3, 2), (3, 2)]
    assert [str(node.args[0]) for node in graph.nodes if node.target is condition] == ["gt"]


def test_an_operation_that_fails_on_the_example_is_named():
    tracer = ShapeTracer(torch.ones(2, 3))
    with pytest.raises(RuntimeError, match="shape"):
        tracer.graph_of(Function(lambda x: x.reshape(4)))
    assert (tracer.failed.op, tracer.failed.target) == ("call_method", "reshape")
