"""The book of channel groups kept while tracing: which channels are one, which must stay whole."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from schemas.submodel import ChannelGroup, ParameterLayout, Segment

Segments = tuple[Segment, ...]


class ChannelLedger:
    """Groups merge (union-find, the earliest layer's name wins) and are pinned, never split.

    `claims` says, by identity of a parameter, what lies along its axes: a parameter used twice, or held
    under two names, is claimed twice and its two readings become one.
    """

    def __init__(self) -> None:
        self.claims: dict[int, dict[int, Segments]] = {}
        self._order: dict[str, int] = {}
        self._parent: dict[str, str] = {}
        self._channels: dict[str, int] = {}
        self._multiple: dict[str, int] = {}
        self._layers: dict[str, set[str]] = {}
        self._pinned: set[str] = set()
        self._sealed: set[int] = set()

    def new(self, layer: str, channels: int) -> Segments:
        """The channels that `layer` makes; the same ones when it is called again."""
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
        """Note what lies along one axis of a parameter or buffer."""
        axes = self.claims.setdefault(id(tensor), {})
        if axis in axes:
            self.unify(axes[axis], segments)
        else:
            axes[axis] = segments

    def seal(self, tensor: torch.Tensor) -> None:
        """Keep every channel of a parameter that the forward method reads by itself."""
        self._sealed.add(id(tensor))

    def pin(self, segments: Segments) -> None:
        """Keep these channels whole for good."""
        self._pinned.update(self._roots(segments))

    def unify(self, first: Segments, second: Segments) -> None:
        """Make two runs of equal length the same channels; runs of unlike structure are pinned."""
        if [(s.channels, s.repeat) for s in first] != [(s.channels, s.repeat) for s in second]:
            self.pin(first + second)
            return
        for one, other in zip(first, second, strict=True):
            if one.group is None or other.group is None:
                self.pin((one, other))
            else:
                self._merge(self._root(one.group), self._root(other.group))

    def keep_blocks(self, segments: Segments, block: int) -> None:
        """Keep runs of `block` channels together; runs that straddle two segments pin them."""
        if any(segment.repeat != 1 or segment.channels % block for segment in segments):
            self.pin(segments)
            return
        for root in self._roots(segments):
            self._multiple[root] = math.lcm(self._multiple[root], block)

    def close(self) -> dict[str, ChannelGroup]:
        """The groups that may be cut, in the order of their first layers."""
        for identity in self._sealed:
            for segments in self.claims.get(identity, {}).values():
                self.pin(segments)
        for name, multiple in self._multiple.items():
            if self._channels[name] % multiple:
                self._pinned.add(name)
        roots = [name for name, parent in self._parent.items() if name == parent]
        return {name: self._group(name) for name in roots if name not in self._pinned}

    def layout(self, tensor: torch.Tensor, groups: Mapping[str, ChannelGroup]) -> ParameterLayout:
        """Where the channels of `groups` lie in one parameter or buffer."""
        claims = {
            axis: tuple(self._named(segment, groups) for segment in segments)
            for axis, segments in sorted(self.claims.get(id(tensor), {}).items())
        }
        cut = {axis: segments for axis, segments in claims.items() if any(s.group for s in segments)}
        return ParameterLayout(shape=tuple(tensor.shape), axes=cut)

    def _named(self, segment: Segment, groups: Mapping[str, ChannelGroup]) -> Segment:
        root = None if segment.group is None else self._root(segment.group)
        return segment.model_copy(update={"group": root if root in groups else None})

    def _group(self, name: str) -> ChannelGroup:
        layers = sorted(self._layers[name], key=self._order.__getitem__)
        return ChannelGroup(
            channels=self._channels[name], layers=tuple(layers), multiple=self._multiple[name]
        )

    def _roots(self, segments: Segments) -> set[str]:
        return {self._root(segment.group) for segment in segments if segment.group is not None}

    def _root(self, name: str) -> str:
        while self._parent[name] != name:
            name = self._parent[name]
        return name

    def _merge(self, one: str, other: str) -> None:
        first, second = sorted((one, other), key=self._order.__getitem__)
        if first == second:
            return
        self._parent[second] = first
        self._layers[first] |= self._layers[second]
        self._multiple[first] = math.lcm(self._multiple[first], self._multiple[second])
        if second in self._pinned:
            self._pinned.add(first)
