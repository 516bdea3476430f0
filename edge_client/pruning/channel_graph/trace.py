"""Finds the channel groups of a network and their positions in its parameters: `trace_channels`.

The network is traced once with `torch.fx`; each tensor's channel axis is labelled with segments, and groups
that meet are merged. torch-pruning's dependency graph was rejected: behind a flattened concatenation, a group
of one branch also cuts the other, it ignores the blocks of group norms, and its groups cannot be sent.
"""

import copy
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx import Node
from torch.nn import functional as F

from edge_client.models.fixed_state import distinct, sent_tensors
from edge_client.models.shape_tracer import ShapeTracer
from edge_client.pruning.channel_graph import layers, operations, reshaping
from edge_client.pruning.channel_graph.calls import Call, Signal, Stored, Value, shape_of
from edge_client.pruning.channel_graph.ledger import ChannelLedger, Stop, line_of, stop_at
from schemas import errors, submodel

# Rules of functions that read parameters: those of layers with forward methods of their own, and scales.


def convolution_of(kind: type[nn.Module]) -> reshaping.Rule:
    """`F.conv2d` of a layer of this kind."""

    def rule(call: Call) -> Value:
        name, layer = _owner(call, kind, weight=1, bias=2)
        if layer is None or call.option(6, "groups", 1) != layer.groups:
            return call.give_up()
        return layers.convolve(call, name, layer)

    return rule


def linear(call: Call) -> Value:
    """`F.linear` of a linear layer."""
    name, layer = _owner(call, nn.Linear, weight=1, bias=2)
    return call.give_up() if layer is None else layers.multiply(call, name, layer)


def layer_norm(call: Call) -> Value:
    """`F.layer_norm` of a layer normalisation."""
    _, layer = _owner(call, nn.LayerNorm, weight=2, bias=3)
    if layer is None or call.option(1, "normalized_shape") != layer.normalized_shape:
        return call.give_up()
    return layers.normalise_last(call, layer)


def group_norm(call: Call) -> Value:
    """`F.group_norm` of a group normalisation."""
    _, layer = _owner(call, nn.GroupNorm, weight=2, bias=3)
    if layer is None or call.option(1, "num_groups") != layer.num_groups:
        return call.give_up()
    return layers.normalise_groups(call, layer)


def batch_norm(call: Call) -> Value:
    """`F.batch_norm`, whose tensors tell the number of channels: of any layer."""
    names = ("running_mean", "running_var", "weight", "bias")
    given = [call.option(place, name) for place, name in enumerate(names, start=1)]
    stored = [call.find_stored(argument) for argument in given if argument is not None]
    tensors = [each.tensor for each in stored if each is not None]
    return (
        layers.claim_along(call, tensors, axis=1, position=0)
        if len(tensors) == len(stored)
        else call.give_up()
    )


def scale(call: Call) -> Value:
    """A product with a parameter that has a number for each channel; any other is one of elements."""
    nodes = call.node.all_input_nodes
    factors = [node for node in nodes if isinstance(call.values[node], Stored)]
    others = [node for node in nodes if isinstance(call.values[node], Signal)]
    if len(factors) == len(others) == 1 and len(nodes) == 2 and _scales(call, factors[0], others[0]):
        return call.values[others[0]]
    call.seal()
    return operations.elementwise(call)


def _scales(call: Call, factor: Node, source: Node) -> bool:
    """Whether a factor has a number for each channel of a source; then these are the source's channels."""
    signal, stored, shape = call.values[source], call.values[factor], shape_of(source)
    assert isinstance(signal, Signal)
    assert isinstance(stored, Stored)
    channels = shape[signal.axis]
    wanted = (1,) * signal.axis + (channels,) + (1,) * (len(shape) - signal.axis - 1)
    padded = (1,) * (len(shape) - len(shape_of(factor))) + shape_of(factor)
    if padded != wanted or call.result_shape != shape or signal.block > 1 or channels == 1:
        return False
    call.ledger.claim(stored.tensor, stored.tensor.shape.index(channels), signal.segments)
    return True


def view_of(rule: reshaping.Rule, *, keeps: Callable[[Call], bool] = lambda _: True) -> reshaping.Rule:
    """A rule that also gives a parameter further axes of one place, if the call `keeps` all else."""

    def view(call: Call) -> Value:
        value, longest = call.values[call.source], max(call.result_shape, default=0)
        if isinstance(value, Stored) and longest == value.tensor.numel() and keeps(call):
            return value
        call.seal()
        return rule(call)

    return view


def _infers(call: Call) -> bool:
    """Whether a view leaves the number of channels open."""
    sizes = call.list_argument(1, "shape")
    return [size for size in sizes if size != 1] == [-1]


def _adds_axes(call: Call) -> bool:
    """Whether `x[:, None]` takes all places."""
    index = call.option(1, "index")
    return all(
        each is None or each == slice(None) for each in (index if isinstance(index, tuple) else (index,))
    )


def _owner(call: Call, kind: type[nn.Module], *, weight: int, bias: int) -> tuple[str, Any]:
    """The name of the layer of a kind whose weight and bias are these arguments, and the layer; or None."""
    stored, given = call.find_stored(call.option(weight, "weight")), call.option(bias, "bias")
    if stored is None:
        return "", None
    name = stored.name.rpartition(".")[0]
    layer: Any = call.layer.get_submodule(name)
    other = None if given is None else call.find_stored(given)
    same = isinstance(layer, kind) and layer.weight is stored.tensor
    if not same or (
        (layer.bias is not None or given is not None) and (other is None or other.tensor is not layer.bias)
    ):
        return "", None
    return name, layer


_PRODUCTS = (torch.mul, operator.mul, operator.imul)
STORED_FUNCTIONS: Mapping[Callable[..., Any], reshaping.Rule] = {
    F.conv1d: convolution_of(nn.Conv1d),
    F.conv2d: convolution_of(nn.Conv2d),
    F.conv3d: convolution_of(nn.Conv3d),
    F.linear: linear,
    F.batch_norm: batch_norm, F.layer_norm: layer_norm, F.group_norm: group_norm,
    torch.unsqueeze: view_of(reshaping.unsqueeze), torch.reshape: view_of(reshaping.reshape, keeps=_infers),
    operator.getitem: view_of(operations.item, keeps=_adds_axes),
    **dict.fromkeys(_PRODUCTS, scale),
}  # fmt: skip
STORED_METHODS: Mapping[str, reshaping.Rule] = {
    "unsqueeze": view_of(reshaping.unsqueeze),
    "view": view_of(reshaping.reshape, keeps=_infers), "reshape": view_of(reshaping.reshape, keeps=_infers),
    "mul": scale, "mul_": scale,
}  # fmt: skip
READS_STORED = frozenset({*STORED_FUNCTIONS.values(), *STORED_METHODS.values()})


PROBES = 2  # batch size of the trial run: with 1, the batch axis could be squeezed


@dataclass(frozen=True)
class Traced:
    """A network's channels that can be cut, and the operations at which others stay whole."""

    channel_map: submodel.ChannelMap
    stops: tuple[Stop, ...]


def trace_channels(module: nn.Module, input_shape: tuple[int, ...]) -> submodel.ChannelMap:
    return trace(module, input_shape).channel_map


def trace(module: nn.Module, input_shape: tuple[int, ...]) -> Traced:
    """Map the channels of `module` that can be cut; those behind unknown operations are pinned.

    `input_shape` excludes the batch. Raises `ConfigError` if the network cannot be traced.
    """
    plain = copy.deepcopy(module).eval()
    graph = _trace(plain, input_shape)
    ledger = ChannelLedger()
    values: dict[fx.Node, Value] = {}
    last = _behind_layers(plain, graph)
    for node in graph.nodes:
        values[node] = _follow(Call(node, values, ledger, _layer(plain, node), node in last))
    tensors = sent_tensors(plain)
    groups = _without_tied(ledger.close(), tensors)
    parameters = {name: ledger.layout(tensor, groups) for name, tensor in tensors.items()}
    return Traced(submodel.ChannelMap(groups=groups, parameters=parameters), tuple(ledger.stops))


def _behind_layers(module: nn.Module, graph: fx.Graph) -> set[Node]:
    """The nodes that compute the outputs from those of the last layers."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        given = (str(each.target) for each in node.all_input_nodes if each.op == "get_attr")
        read = any(isinstance(operator.attrgetter(name)(module), nn.Parameter) for name in given)
        is_layer = node.op == "call_module" and any(True for _ in _layer(module, node).parameters())
        if not (read or is_layer) and found.issuperset(node.users):
            found.add(node)
    return found


def _without_tied(
    groups: Mapping[str, submodel.ChannelGroup], tensors: Mapping[str, Tensor]
) -> dict[str, submodel.ChannelGroup]:
    """The groups without layers whose weight is that of another layer, which is scored by its first name."""
    tied = {name.rpartition(".")[0] for name in tensors.keys() - distinct(tensors).keys()}
    own = {name: tuple(layer for layer in g.layers if layer not in tied) for name, g in groups.items()}
    return {name: g.model_copy(update={"layers": own[name] or g.layers}) for name, g in groups.items()}


def _trace(module: nn.Module, input_shape: tuple[int, ...]) -> fx.Graph:
    like = next(module.parameters(), torch.zeros(()))
    example = torch.zeros(PROBES, *input_shape, dtype=like.dtype, device=like.device)
    tracer = ShapeTracer(example, is_leaf=lambda layer: layers.rule_of_layer(layer) is not None)
    try:
        return tracer.graph_of(module)
    except Exception as error:
        failed = tracer.failed
        place = line_of(error) if failed is None else stop_at(failed, _layer(module, failed)).operation
        raise _make_trace_error(module, input_shape, error, place) from error


def _make_trace_error(
    module: nn.Module, input_shape: tuple[int, ...], error: Exception, place: str
) -> errors.ConfigError:
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return errors.ConfigError(
        f"{type(module).__name__} cannot be traced for inputs of shape {input_shape}: "
        f"{f'at {place}, ' if place else ''}{reason}",
        remedy="its forward method must take one tensor of that shape, and not branch or loop on "
        "values of tensors",
    )


def _layer(module: nn.Module, node: fx.Node) -> nn.Module:
    return module.get_submodule(str(node.target)) if node.op == "call_module" else module


def _follow(call: Call) -> Value:
    node = call.node
    if node.op == "placeholder":
        colours = shape_of(node)[1:2]
        return Signal(1, (submodel.Segment(channels=colours[0]),)) if colours else None
    if node.op == "get_attr":
        return Stored(call.name, operator.attrgetter(call.name)(call.layer))
    rule = _rule(call)
    if rule not in READS_STORED:
        call.seal()
    if rule is not None:
        return rule(call)
    if node.op == "call_module" and any(True for _ in call.layer.parameters()):
        # A layer of an unknown type has channels of its own.
        call.stop()
    return call.give_up()


def _rule(call: Call) -> reshaping.Rule | None:
    node = call.node
    if not node.all_input_nodes:
        return None
    if node.op == "call_module":
        # A hook may change the layer's input or output.
        hooked = call.layer._forward_hooks or call.layer._forward_pre_hooks
        return None if hooked else layers.rule_of_layer(call.layer)
    if node.op == "call_function" and callable(node.target):
        return STORED_FUNCTIONS.get(node.target) or operations.rule_of_function(node.target)
    name = str(node.target)
    return STORED_METHODS.get(name) or operations.METHODS.get(name) if node.op == "call_method" else None
