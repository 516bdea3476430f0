"""FjORD's ordered dropout: a device also trains the smaller tiers in its sub-model (Horvath et al. 2021)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from edge_client.pruning.index_sets import IndexSet, submodel_index_set, submodel_map
from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import (
    Batch,
    LocalObjective,
    Run,
    StepNetwork,
    StepPart,
    TrainingContext,
)
from edge_client.training.objectives.formulas import drawn_width, smaller_specs
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays, Groups

if TYPE_CHECKING:
    from edge_client.models.frozen_part import SplitNetwork


@dataclass(frozen=True, eq=False)
class Width:
    """A smaller sub-model: its network without numbers, the place of its arrays in the device's, and the
    share of the device's channels that it has.
    """

    kept: Mapping[str, int | tuple[int, ...]]
    network: "nn.Module"
    index_sets: Mapping[str, IndexSet]
    buffers: frozenset[str]
    share: float

    def run(self, module: "nn.Module") -> Run:
        """The smaller network with the part of the module's weights that it shares; gradients reach them."""
        return partial(self.outputs, {**dict(module.named_parameters()), **dict(module.named_buffers())})

    def outputs(self, tensors: Mapping[str, "Tensor"], inputs: "Tensor") -> "Tensor":
        """The smaller network's outputs from the device's own tensors, by name."""
        # A weight of two layers is among the tensors once.
        held = {name: index_set for name, index_set in self.index_sets.items() if name in tensors}
        parts = {name: _take_part(tensors[name], index_set) for name, index_set in held.items()}
        # Statistics of the smaller network are not those of the device's own.
        copies = {name: parts[name].detach().clone() for name in self.buffers & parts.keys()}
        outputs: Tensor = torch.func.functional_call(self.network, {**parts, **copies}, (inputs,))
        return outputs

    def as_step_network(self) -> StepNetwork:
        return StepNetwork(tuple(sorted(self.kept.items())), self.outputs)


class OrderedDropout(LocalObjective):
    """Train one width per step: the device's own with probability `own`, else one of the smaller, all alike.

    Without `own` all widths are equally probable, as in FjORD. With `distil` > 0 a step of the device's own
    width also trains one smaller width to match its outputs, with this share of the loss (the paper's
    self-distillation). The group `widths` has the smaller sub-models; a device without any trains its own.
    """

    receives = frozenset({"widths"})
    reads_outputs_only: ClassVar[bool] = True
    changing: ClassVar[tuple[str, ...]] = ("drawn",)

    def __init__(self, *, own: float | None = None, distil: float = 0.0) -> None:
        if own is not None and not 0 <= own <= 1:
            raise ConfigError(f"objective 'ordered-dropout': own must be from 0 to 1, got {own!r}")
        if not 0 <= distil < 1:
            raise ConfigError(
                f"objective 'ordered-dropout': distil must be at least 0 and below 1, got {distil!r}"
            )
        self._own, self._distil = own, distil
        self._widths: list[Width] = []
        self._chosen = self._drawn = 0
        self._seed = 0
        self._has_modes = False

    def why_before(
        self, parts: "SplitNetwork", module: "nn.Module", received: Groups, channel_map: ChannelMap | None
    ) -> str:
        if channel_map is None:
            return ""
        from edge_client.models.frozen_values import NoSplit

        try:
            for spec in smaller_specs(received.get("widths", {})):
                _rest_of(parts, module, spec, channel_map)
        except NoSplit as reason:
            return f"trains smaller widths: {reason}"
        return ""

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        if context.channel_map is not None:
            own = submodel_map(context.channel_map, context.spec)
            self._widths = _smaller(module, context.received.get("widths", {}), own, context.parts)
            self._has_modes = context.parts is not None and context.parts.has_modes
        self._seed = context.plan.seed
        self._draw()
        return ()

    def network(self, module: "nn.Module", run: Run) -> Run:
        """The step's width; without training, the device's own."""
        narrower = module.training and self._chosen < len(self._widths)
        return self._widths[self._chosen].run(module) if narrower else run

    def switches(self) -> bool:
        # Such a rest has its tensors under other names.
        return not self._distil and not self._has_modes

    def choose_network(self) -> StepNetwork | None:
        return self._widths[self._chosen].as_step_network() if self._chosen < len(self._widths) else None

    def step_part(self, outputs: int) -> StepPart | None:
        return None if self._distil else StepPart(advance=self.correct)

    def share(self) -> float:
        return self._widths[self._chosen].share if self._chosen < len(self._widths) else 1.0

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        if not self._distil or not self._widths or self._chosen < len(self._widths):
            return base
        smaller = self._widths[self._drawn % len(self._widths)].run(batch.module)(batch.inputs)
        known = torch.nn.functional.log_softmax(batch.outputs.detach(), dim=1)
        matched = torch.nn.functional.kl_div(
            torch.nn.functional.log_softmax(smaller, dim=1), known, reduction="batchmean", log_target=True
        )
        return (1 - self._distil) * base + self._distil * matched

    def correct(self) -> None:
        self._drawn += 1
        self._draw()

    def resume(self, state: Mapping[str, Any]) -> None:
        super().resume(state)
        self._draw()

    def close(self) -> None:
        self._widths = []

    def _draw(self) -> None:
        self._chosen = drawn_width(self._seed, self._drawn, smaller=len(self._widths), own=self._own)


def _smaller(
    module: "nn.Module", arrays: Arrays, channel_map: ChannelMap, parts: "SplitNetwork | None"
) -> list[Width]:
    from edge_client.pruning.surgery import cut_down, hollow

    def narrow(spec: SubModelSpec) -> "nn.Module":
        if parts is None:
            return cut_down(hollow(module), spec, channel_map)
        rest, layers = _rest_of(parts, module, spec, channel_map), dict(module.named_modules())
        for name, layer in rest.named_modules():
            if name in layers:
                layer.training = layers[name].training
        return rest

    buffers = frozenset(name for name, _ in module.named_buffers())
    return [_width(narrow(spec), spec, channel_map, buffers) for spec in smaller_specs(arrays)]


def _width(
    network: "nn.Module", spec: SubModelSpec, channel_map: ChannelMap, buffers: frozenset[str]
) -> Width:
    layouts, held = channel_map.parameters, {name for name, _ in _every_tensor(network)}
    places = {name: submodel_index_set(layout, spec) for name, layout in layouts.items() if name in held}
    return Width(dict(spec.kept), network, places, buffers, spec.share(channel_map))


def _every_tensor(network: "nn.Module") -> "Iterable[tuple[str, Tensor]]":
    yield from network.named_parameters(remove_duplicate=False)
    yield from network.named_buffers(remove_duplicate=False)


def _rest_of(
    parts: "SplitNetwork", module: "nn.Module", spec: SubModelSpec, channel_map: ChannelMap
) -> "nn.Module":
    """What follows the features in the smaller network; raises `NoSplit` if it has others."""
    from edge_client.pruning.surgery import compact

    return parts.rest_of(spec.model_dump_json(), partial(compact, module, spec, channel_map))


def _take_part(tensor: "Tensor", index_set: IndexSet) -> "Tensor":
    """The part of a tensor; slices are views."""
    if not tensor.ndim:
        return tensor
    for axis, index in enumerate(index_set.axes):
        if isinstance(index, slice):
            tensor = tensor.narrow(axis, index.start, index.stop - index.start)
        else:
            tensor = tensor.index_select(axis, torch.from_numpy(index).to(tensor.device))
    return tensor
