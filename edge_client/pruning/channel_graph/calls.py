"""What a rule of the channel tracer sees: one call in the graph, its tensors and where their channels are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from torch.fx import Node

from edge_client.pruning.channel_graph.ledger import ChannelLedger, Segments


@dataclass(frozen=True)
class Signal:
    """A tensor whose axis `axis` carries channels."""

    axis: int
    segments: Segments


@dataclass(frozen=True)
class Size:
    """The shape of a tensor of `ndim` axes, as `x.shape` gives it."""

    signal: Signal
    ndim: int


@dataclass(frozen=True)
class Extent:
    """The number of channels, as `x.shape[1]` gives it: it changes when channels are cut."""

    segments: Segments


Value = Signal | Size | Extent | None
"""None: a tensor or number in which no channel can be cut."""


@dataclass(frozen=True)
class Call:
    """One node of the graph; a rule reads it and returns the value of its result."""

    node: Node
    values: Mapping[Node, Value]
    ledger: ChannelLedger
    layer: nn.Module

    @property
    def name(self) -> str:
        """Qualified name of the layer that is called."""
        return str(self.node.target)

    @property
    def source(self) -> Node:
        """The tensor that the call is about."""
        first = self.node.args[0] if self.node.args else None
        return first if isinstance(first, Node) else self.node.all_input_nodes[0]

    @property
    def signal(self) -> Signal | None:
        """Where the channels of the source are."""
        value = self.values[self.source]
        return value if isinstance(value, Signal) else None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the source."""
        return shape_of(self.source)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the result; empty when it is no tensor."""
        return shape_of(self.node)

    def option(self, position: int, name: str, default: object = None) -> object:
        """An argument by position or by name."""
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(name, default)

    def listed(self, position: int, name: str) -> tuple[object, ...]:
        """An argument that is a list, or the rest of the arguments: `f(x, (1, 2))` or `f(x, 1, 2)`."""
        value = self.option(position, name, ())
        if isinstance(value, (tuple, list)):
            return tuple(value)
        return tuple(self.node.args[position:]) or (value,)

    def give_up(self) -> Value:
        """Keep every channel that enters this call whole, and follow its result no further."""
        for node in self.node.all_input_nodes:
            value = self.values[node]
            if isinstance(value, Size):
                self.ledger.pin(value.signal.segments)
            elif value is not None:
                self.ledger.pin(value.segments)
        return None


def shape_of(node: Node) -> tuple[int, ...]:
    """The shape that propagation found for a node; empty when it is no tensor."""
    return tuple(node.meta.get("shape", ()))
