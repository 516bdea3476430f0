"""HeteroFL on a device: its masked cross-entropy and its scaler (Diao et al. 2021, section 3)."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import (
    Batch,
    BatchLoss,
    LocalObjective,
    StepPart,
    Tensors,
    TrainingContext,
)
from schemas.submodel import ChannelMap, SubModelSpec


class MaskedLoss(LocalObjective):
    """Set the outputs of classes without local examples to 0 in the loss, so that they are not unlearned.

    Its cross-entropy takes the place of the loss so far: name it first.
    """

    labels = frozenset({"classes"})
    reads_outputs_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self._own: Tensor | None = None

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        self._own = torch.unique(context.labels)
        return ()

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        missing = self._missing(batch.outputs.shape[1])
        return torch.nn.functional.cross_entropy(batch.outputs.masked_fill(missing, 0), batch.labels)

    def step_part(self, outputs: int) -> StepPart:
        cross_entropy = torch.nn.functional.cross_entropy

        def loss(weights: Tensors, own: Tensors, batch: BatchLoss, base: "Tensor") -> "Tensor":
            return batch.mean(cross_entropy, batch.outputs.masked_fill(own["missing"], 0))

        return StepPart({"missing": self._missing(outputs)}, loss)

    def _missing(self, classes: int) -> "Tensor":
        """Whether the device lacks examples of each class, [classes]."""
        assert self._own is not None
        missing = torch.ones(classes, dtype=torch.bool, device=self._own.device)
        missing[self._own] = False
        return missing

    def close(self) -> None:
        self._own = None


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
