"""HeteroFL's scaler (Diao et al. 2021, section 3)."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from edge_client.system.lazy_torch import Tensor, nn
from edge_client.training.objectives.objective import LocalObjective, StepPart, TrainingContext
from schemas.submodel import ChannelMap, SubModelSpec

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle


class Scaler(LocalObjective):
    """Divide the outputs of every pruned layer, in training, by the share of the channels that are kept.

    As with inverted dropout, the next layer then sees outputs of the full network's scale.
    """

    def __init__(self) -> None:
        self._hooks: list[RemovableHandle] = []

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        if context.channel_map is not None:
            self._hooks = scale_pruned_layers(module, context.spec, context.channel_map)
        return ()

    def step_part(self, outputs: int) -> StepPart:
        return StepPart()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def scale_pruned_layers(
    module: "nn.Module", spec: SubModelSpec, channel_map: ChannelMap
) -> list["RemovableHandle"]:
    """Divide the outputs of pruned layers in training, until the returned hooks are removed."""
    layers, hooks = dict(module.named_modules()), []
    for name in spec.kept:
        group = channel_map.groups[name]
        divide = partial(_divide, spec.count(name, group.channels) / group.channels)
        hooks += [layers[layer].register_forward_hook(divide) for layer in group.layers]
    return hooks


def _divide(share: float, layer: "nn.Module", inputs: object, outputs: "Tensor") -> "Tensor":
    return outputs / share if layer.training else outputs
