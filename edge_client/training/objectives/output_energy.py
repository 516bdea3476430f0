"""Scores of channels by what they give to the layers that read them."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar

from edge_client.pruning.index_sets import submodel_map
from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext, array_of
from schemas.submodel import ChannelMap, Segment, SubModelSpec
from schemas.tensors.arrays import Groups


class OutputEnergy(LocalObjective):
    """Rank channels by the energy of their part in the outputs of the layers that read them.

    The score of channel c is the sum of w^2 x^2 over its inputs x to a convolution or linear layer, and over
    this layer's weights w of c: what is lost of the output's energy without it, if channels were independent.
    The group `attention` sends the scores of the last epoch {layer: [C]}, divided by the layer's largest.
    """

    sends = frozenset({"attention"})
    changing: ClassVar[tuple[str, ...]] = ("totals",)

    def __init__(self, *, layers: tuple[str, ...]) -> None:
        self._layers = layers
        self._meter: EnergyMeter | None = None
        self._totals: dict[str, Tensor] = {}

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        if context.channel_map is not None:
            self._meter = EnergyMeter(module, self._layers, context.channel_map, context.spec)
        return ()

    def start_epoch(self) -> None:
        self._totals = {}

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        if self._meter is not None:
            for layer, energy in self._meter.take().items():
                self._totals[layer] = self._totals[layer] + energy if layer in self._totals else energy
        return base

    def finish(self) -> Groups:
        tiny = torch.finfo(torch.float32).tiny
        shares = {layer: total / total.max().clamp(min=tiny) for layer, total in self._totals.items()}
        return (
            {"attention": {layer: array_of(share.float()) for layer, share in shares.items()}}
            if shares
            else {}
        )

    def close(self) -> None:
        if self._meter is not None:
            self._meter.remove()
            self._meter = None


class EnergyMeter:
    """Hooks that add up, in each forward pass, the energies of the channels of `layers`."""

    def __init__(
        self, module: "nn.Module", layers: Iterable[str], channel_map: ChannelMap, spec: SubModelSpec
    ) -> None:
        own = submodel_map(channel_map, spec)
        self._written = {layer: own.parameters[f"{layer}.weight"].axes.get(0, ()) for layer in layers}
        groups = {segment.group for segments in self._written.values() for segment in segments}
        self._energies: dict[str, Tensor] = {}
        self._handles: list[Any] = []
        parts = dict(module.named_modules())
        for name, layout in own.parameters.items():
            reader, read = parts.get(name.removesuffix(".weight")), layout.axes.get(1, ())
            if isinstance(reader, _readers()) and any(segment.group in groups for segment in read):
                self._handles.append(reader.register_forward_pre_hook(partial(self._observe, read)))

    def take(self) -> dict[str, "Tensor"]:
        """The energies [C] of each layer since the last call, in float64; 0 for what nobody reads."""
        energies, self._energies = self._energies, {}
        return {
            layer: torch.cat([_of_segment(segment, energies) for segment in segments])
            for layer, segments in self._written.items()
            if energies and segments
        }

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _observe(self, read: tuple[Segment, ...], layer: "nn.Module", inputs: tuple["Tensor", ...]) -> None:
        """Add the energies of inputs [B, C, ...], or [..., C] of a linear layer."""
        axis = -1 if isinstance(layer, torch.nn.Linear) else 1
        fed = inputs[0].detach().double().movedim(axis, 0).flatten(1).square().sum(1)
        assert isinstance(layer.weight, torch.Tensor)
        energy = fed * layer.weight.detach().double().transpose(0, 1).flatten(1).square().sum(1)
        start = 0
        for segment in read:
            own = energy[start : start + segment.positions].reshape(segment.channels, segment.repeat).sum(1)
            start += segment.positions
            if segment.group is not None:
                before = self._energies.get(segment.group)
                self._energies[segment.group] = own if before is None else before + own


def _readers() -> tuple[type["nn.Module"], ...]:
    return (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)


def _of_segment(segment: Segment, energies: Mapping[str, "Tensor"]) -> "Tensor":
    """The energies of a segment's positions."""
    like = next(iter(energies.values()))
    own = energies.get(segment.group or "", like.new_zeros(segment.channels))
    return own.repeat_interleave(segment.repeat)
