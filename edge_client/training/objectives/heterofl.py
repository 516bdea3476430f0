"""HeteroFL on a device (Diao et al. 2021, section 3): its loss, scaler, static batch normalisation."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives import base
from edge_client.training.objectives.base import (
    Batch,
    BatchLoss,
    LocalObjective,
    StepPart,
    Tensors,
    TrainingContext,
)
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Groups


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


class BatchStatistics(base.LocalObjective):
    """Measure the mean and variance of each batch normalisation's input over all of a device's examples.

    It takes part in the run's last round alone, in which nothing is trained. As in training, each layer
    normalises a batch by the batch's own statistics. The group `statistics` sends `running_mean` [C] and
    `running_var` [C] of each layer, under the names of these buffers. Frozen layers keep theirs.
    """

    sends = frozenset({"statistics"})
    reads_outputs_only: ClassVar[bool] = True
    measures: ClassVar[bool] = True

    def __init__(self) -> None:
        self._layers: list[nn.modules.batchnorm._BatchNorm] = []
        self._sums: dict[str, tuple[int, Tensor, Tensor]] = {}
        self._handles: list[Any] = []

    def setup(self, module: "nn.Module", context: base.TrainingContext) -> Iterable["nn.Parameter"]:
        for name, layer in module.named_modules():
            is_norm = isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
            if is_norm and layer.training and layer.running_mean is not None:
                self._layers.append(layer)
                self._handles.append(layer.register_forward_pre_hook(partial(self._observe, name)))
        return ()

    def network(self, module: "nn.Module", run: base.Run) -> base.Run:
        """The network with batch statistics; its buffers stay as they are."""

        def forward(inputs: "Tensor") -> "Tensor":
            for layer in self._layers:
                layer.training, layer.track_running_stats = True, False
            return run(inputs)

        return forward

    def finish(self) -> Groups:
        statistics = {}
        for name, (count, total, squares) in self._sums.items():
            mean = total / count
            statistics[f"{name}.running_mean"] = base.array_of(mean.float())
            statistics[f"{name}.running_var"] = base.array_of(
                (squares / count - mean**2).clamp(min=0).float()
            )
        return {"statistics": statistics} if statistics else {}

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        for layer in self._layers:
            layer.track_running_stats = True
        self._handles, self._layers = [], []

    def _observe(self, name: str, layer: "nn.Module", inputs: tuple["Tensor", ...]) -> None:
        """Add the values of a batch [B, C, ...], per channel, in double precision."""
        with torch.no_grad():
            values = inputs[0].detach().double().transpose(0, 1).flatten(1)
            count, total, squares = self._sums.get(name, (0, torch.zeros(()), torch.zeros(())))
            sums = total + values.sum(1), squares + values.square().sum(1)
            self._sums[name] = (count + values.shape[1], *sums)
