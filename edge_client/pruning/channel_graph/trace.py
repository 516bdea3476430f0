"""Finds the channel groups of a network and their positions in its parameters: `trace_channels`.

The network is traced once with `torch.fx`; each tensor's channel axis is labelled with segments, and groups
that meet are merged. torch-pruning's dependency graph was rejected: behind a flattened concatenation, a group
of one branch also cuts the other, it ignores the blocks of group norms, and its groups cannot be sent.
"""

import copy
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from edge_client.models.fixed_state import distinct, sent_tensors
from edge_client.models.shape_tracer import ShapeTracer
from edge_client.pruning.channel_graph import layers, operations, reshaping
from edge_client.pruning.channel_graph.calls import Call, Signal, Stored, Value, shape_of
from edge_client.pruning.channel_graph.ledger import ChannelLedger, Stop, line_of, stop_at
from edge_client.pruning.channel_graph.stored import READS_STORED, STORED_FUNCTIONS, STORED_METHODS
from schemas import errors, submodel

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
    for node in graph.nodes:
        values[node] = _follow(Call(node, values, ledger, _layer(plain, node)))
    tensors = sent_tensors(plain)
    groups = _without_tied(ledger.close(), tensors)
    parameters = {name: ledger.layout(tensor, groups) for name, tensor in tensors.items()}
    return Traced(submodel.ChannelMap(groups=groups, parameters=parameters), tuple(ledger.stops))


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
