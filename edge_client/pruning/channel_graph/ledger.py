"""The channel groups found while tracing: coupled channels are merged, others pinned."""

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.fx import Node

from edge_client.models import shape_tracer
from schemas.submodel import ChannelGroup, ParameterLayout, Segment

SERIES = "'tcn' is a network for series that is cut"
HEADS = "write attention with a linear layer each for queries, keys and values, as 'vit-tiny' does"
SIZES = "give the number of channels or heads as -1, since a tier has fewer"
SUMS = "a sum with a parameter or with channels that stay whole stays whole too: put the width between sums"
OTHERS = "put the width into linear layers and convolutions around it"
# By the name of a layer's type, a function or a method.
REMEDIES: Mapping[str, str] = {
    **dict.fromkeys(("GRU", "LSTM", "RNN"), SERIES),
    **dict.fromkeys(("MultiheadAttention", "TransformerEncoderLayer", "chunk", "split"), HEADS),
    **dict.fromkeys(("reshape", "unflatten", "view"), SIZES),
    "add": SUMS,
}


@dataclass(frozen=True)
class Stop:
    """A layer, function or method at which channels stay whole on every tier."""

    kind: str
    layer: str = ""

    @property
    def operation(self) -> str:
        """As its author wrote it, with the layer's name."""
        return f"nn.{self.kind} '{self.layer}'" if self.layer else f"{self.kind}()"

    @property
    def remedy(self) -> str:
        return REMEDIES.get(self.kind, OTHERS)


def stop_at(node: Node, layer: nn.Module) -> Stop:
    """The stop at a call of `layer`, of a function or of a method."""
    if node.op == "call_module":
        return Stop(type(layer).__name__, str(node.target))
    return Stop(str(getattr(node.target, "__name__", node.target)))


def line_of(error: BaseException) -> str:
    """The last line of the network's own code that led to `error`: file, number and text; or nothing."""
    library = str(Path(torch.__file__).parent)
    own = (str(Path(__file__).parent), shape_tracer.__file__, "<eval_with_key>")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((library, *own)):
            return f"line {frame.lineno} of {Path(frame.filename).name} ({frame.line})"
    return ""


Segments = tuple[Segment, ...]


class ChannelLedger:
    """Groups merge (union-find, the earliest layer's name wins) and are pinned, never split.

    `claims` maps the identity of a parameter to the segments on its axes. A parameter that is used twice, or
    has two names, is claimed twice, and the two claims are unified. `stops` are in the order of the calls.
    """

    def __init__(self) -> None:
        self.claims: dict[int, dict[int, Segments]] = {}
        self.stops: dict[Stop, None] = {}
        self._order: dict[str, int] = {}
        self._parent: dict[str, str] = {}
        self._channels: dict[str, int] = {}
        self._multiple: dict[str, int] = {}
        self._layers: dict[str, set[str]] = {}
        self._pinned: set[str] = set()
        self._sealed: set[int] = set()
        self._weighing: set[str] = set()

    def new(self, layer: str, channels: int) -> Segments:
        """The output channels of `layer`; the same at every call."""
        if layer not in self._parent:
            self._parent[layer], self._channels[layer] = layer, channels
            self._multiple[layer], self._layers[layer] = 1, set()
        segments = (Segment(channels=channels, group=layer),)
        self.carry(layer, segments)
        return segments

    def carry(self, layer: str, segments: Segments) -> None:
        """Note that `layer`'s output carries these channels."""
        self._order.setdefault(layer, len(self._order))
        for root in self._roots(segments):
            self._layers[root].add(layer)

    def claim(self, tensor: torch.Tensor, axis: int, segments: Segments) -> None:
        """Note the segments on an axis of a parameter or buffer."""
        axes = self.claims.setdefault(id(tensor), {})
        if axis in axes:
            self.unify(axes[axis], segments)
        else:
            axes[axis] = segments

    def seal(self, tensor: torch.Tensor) -> None:
        """Pin all channels of a parameter that the forward method reads directly."""
        self._sealed.add(id(tensor))

    def only_weigh(self, segments: Segments) -> None:
        """Note that the layers of these channels only weigh others: attention's queries and keys."""
        for root in self._roots(segments):
            self._weighing |= self._layers[root]

    def pin(self, segments: Segments) -> None:
        """Exclude these channels from cutting."""
        self._pinned.update(self._roots(segments))

    def unify(self, first: Segments, second: Segments) -> bool:
        """Couple two sequences of segments; False for those of different structure, which are pinned."""
        if [(s.channels, s.repeat) for s in first] != [(s.channels, s.repeat) for s in second]:
            self.pin(first + second)
            return False
        for left, right in zip(first, second, strict=True):
            if left.group is None or right.group is None:
                self.pin((left, right))
            else:
                self._merge(self._root(left.group), self._root(right.group))
        return True

    def keep_blocks(self, segments: Segments, block: int) -> None:
        """Keep blocks of `block` channels together; a block that spans two segments pins them."""
        if any(segment.repeat != 1 or segment.channels % block for segment in segments):
            self.pin(segments)
            return
        for root in self._roots(segments):
            self._multiple[root] = math.lcm(self._multiple[root], block)

    def close(self) -> dict[str, ChannelGroup]:
        """The groups that can be cut, in the order of their first layers."""
        for identity in self._sealed:
            for segments in self.claims.get(identity, {}).values():
                self.pin(segments)
        for name, multiple in self._multiple.items():
            if self._channels[name] % multiple:
                self._pinned.add(name)
        roots = [name for name, parent in self._parent.items() if name == parent]
        return {name: self._group(name) for name in roots if name not in self._pinned}

    def layout(self, tensor: torch.Tensor, groups: Mapping[str, ChannelGroup]) -> ParameterLayout:
        """The positions of the channels of `groups` in a parameter or buffer."""
        claims = {
            axis: tuple(self._with_root_group(segment, groups) for segment in segments)
            for axis, segments in sorted(self.claims.get(id(tensor), {}).items())
        }
        cut = {axis: segments for axis, segments in claims.items() if any(s.group for s in segments)}
        return ParameterLayout(shape=tuple(tensor.shape), axes=cut)

    def _with_root_group(self, segment: Segment, groups: Mapping[str, ChannelGroup]) -> Segment:
        root = None if segment.group is None else self._root(segment.group)
        return segment.model_copy(update={"group": root if root in groups else None})

    def _group(self, name: str) -> ChannelGroup:
        scored = self._layers[name] - self._weighing or self._layers[name]
        layers = tuple(sorted(scored, key=self._order.__getitem__))
        return ChannelGroup(channels=self._channels[name], layers=layers, multiple=self._multiple[name])

    def _roots(self, segments: Segments) -> set[str]:
        return {self._root(segment.group) for segment in segments if segment.group is not None}

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def _merge(self, left: str, right: str) -> None:
        first, second = sorted((left, right), key=self._order.__getitem__)
        if first == second:
            return
        self._parent[second] = first
        self._layers[first] |= self._layers[second]
        self._multiple[first] = math.lcm(self._multiple[first], self._multiple[second])
        if second in self._pinned:
            self._pinned.add(first)
