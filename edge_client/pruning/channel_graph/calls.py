"""The input of a rule of the channel tracer: a call in the graph, and the channel axes of its tensors."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.fx import Node

from edge_client.pruning.channel_graph.ledger import ChannelLedger, Segments, stop_at


@dataclass(frozen=True)
class Signal:
    """A tensor whose axis `axis` carries channels: each place there stands for `block` positions of them.

    Blocks of more than one are the heads of attention, [B, T, heads, width]; `inner` is then the axis along
    which the positions of a block lie, if there is one.
    """

    axis: int
    segments: Segments
    block: int = 1
    inner: int | None = None

    def with_moved_axes(self, places: Mapping[int, int]) -> "Signal":
        """The same channels after axes changed their places; an axis that is not in `places` is gone."""
        inner = None if self.inner is None else places.get(self.inner)
        return replace(self, axis=places[self.axis], inner=inner)


@dataclass(frozen=True)
class Size:
    """The shape of a tensor of `ndim` axes, as `x.shape` gives it."""

    signal: Signal
    ndim: int


@dataclass(frozen=True)
class Extent:
    """The number of channels or blocks, as `x.shape[1]` gives it; it changes when channels are cut."""

    segments: Segments
    block: int = 1


@dataclass(frozen=True)
class Stored:
    """A parameter or buffer that the forward method reads, or a view of it with further axes of one place."""

    name: str
    tensor: Tensor


Value = Signal | Size | Extent | Stored | None  # None: a tensor or number without channels to cut


@dataclass(frozen=True)
class Call:
    """A node of the graph; a rule maps it to the value of its result. No layer follows one that `is_last`."""

    node: Node
    values: MutableMapping[Node, Value]
    ledger: ChannelLedger
    layer: nn.Module
    is_last: bool

    @property
    def name(self) -> str:
        return str(self.node.target)

    @property
    def source(self) -> Node:
        first = self.node.args[0] if self.node.args else None
        return first if isinstance(first, Node) else self.node.all_input_nodes[0]

    @property
    def signal(self) -> Signal | None:
        """The channels of the source, if any."""
        value = self.values[self.source]
        return value if isinstance(value, Signal) else None

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.source)

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the result; empty if it is not a tensor."""
        return shape_of(self.node)

    def option(self, position: int, name: str, default: object = None) -> object:
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(name, default)

    def list_argument(self, position: int, name: str) -> tuple[object, ...]:
        """An argument that is a list, or the rest of the arguments: `f(x, (1, 2))` or `f(x, 1, 2)`."""
        value = self.option(position, name, ())
        if isinstance(value, (tuple, list)):
            return tuple(value)
        return tuple(self.node.args[position:]) or (value,)

    def find_stored(self, argument: object) -> Stored | None:
        """The parameter or buffer that an argument of the call is; None for any other."""
        value = self.values[argument] if isinstance(argument, Node) else None
        return value if isinstance(value, Stored) else None

    def seal(self) -> None:
        """Pin the channels of all parameters and buffers that enter this call, wherever they are used."""
        for node in self.node.all_input_nodes:
            value = self.values[node]
            if isinstance(value, Stored):
                self.ledger.seal(value.tensor)
                self.values[node] = None

    def give_up(self) -> Value:
        """Pin all channels that enter this call, and do not follow its result."""
        self.seal()
        for node in self.node.all_input_nodes:
            value = self.values[node]
            signal = value.signal if isinstance(value, Size) else value
            if isinstance(signal, Signal | Extent) and any(segment.group for segment in signal.segments):
                self.ledger.pin(signal.segments)
                self.stop()
        return None

    def stop(self) -> None:
        """Note that channels stay whole here; those of the network's outputs do so by right."""
        if not self.is_last:
            self.ledger.stops[stop_at(self.node, self.layer)] = None


def shape_of(node: Node) -> tuple[int, ...]:
    """The propagated shape of a node; empty if it is not a tensor."""
    return tuple(node.meta.get("shape", ()))
