"""What objectives change inside a step graph: further inputs, another loss, observations.

Objectives that only correct gradients, or choose what is trained, work outside of the graph (`objectives`).
"""

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from edge_client.models.fixed_state import distinct, sent_tensors
from edge_client.models.modes import keeps_statistics
from edge_client.pruning.attention import attach
from edge_client.training.objectives.heterofl import scale_pruned_layers
from edge_client.training.objectives.output_energy import EnergyMeter
from edge_client.training.step_graphs import names
from schemas.submodel import ChannelMap, SubModelSpec


@dataclass(frozen=True, eq=False)
class Situation:
    """A copy of the network, which a part may change, and the sub-model that it is; `classes` outputs.

    Only the arrays `trained` (None: all) change in training.
    """

    network: nn.Module
    spec: SubModelSpec
    channel_map: ChannelMap | None
    classes: int
    trained: Collection[str] | None = None


class DrawnObjective(Protocol):
    """An objective's part in a graph. By default every method adds nothing.

    One that `evaluates` runs the network in evaluation mode besides.
    """

    evaluates: ClassVar[bool] = False

    def modules(self) -> Mapping[str, nn.Module]:
        """Modules whose parameters are trained too, by the prefix of their names."""
        return {}

    def inputs(self) -> Mapping[str, Tensor]:
        """Further inputs by name, with an example of each."""
        return {}

    def loss(self, outputs: Tensor, given: Mapping[str, Tensor], base: Tensor) -> Tensor:
        """Replace or extend the loss so far."""
        return base

    def observations(self) -> Mapping[str, Tensor]:
        """Observations of the last forward pass, as sums over the batch."""
        return {}


class DrawnAttention(DrawnObjective):
    """Attention modules behind layers; observes the sum over examples of each layer's attention [C]."""

    def __init__(self, situation: Situation, *, layers: tuple[str, ...], **_: Any) -> None:
        self._attached = attach(situation.network, layers)

    def modules(self) -> Mapping[str, nn.Module]:
        return {names.ATTENTION + layer: module for layer, module in self._attached.by_layer.items()}

    def observations(self) -> Mapping[str, Tensor]:
        taken = self._attached.take_last()
        return {names.ATTENTION + layer: attention.double().sum(0) for layer, attention in taken.items()}


class DrawnEnergy(DrawnObjective):
    """Observes the energies of each layer's channels in what reads them [C]."""

    def __init__(self, situation: Situation, *, layers: tuple[str, ...]) -> None:
        assert situation.channel_map is not None
        self._meter = EnergyMeter(situation.network, layers, situation.channel_map, situation.spec)

    def observations(self) -> Mapping[str, Tensor]:
        return {names.ATTENTION + layer: energy for layer, energy in self._meter.take().items()}


class DrawnDistil(DrawnObjective):
    """The divergence from the answers of the received network, whose tensors are further inputs."""

    evaluates: ClassVar[bool] = True

    def __init__(self, situation: Situation, *, weight: float = 1.0) -> None:
        self._weight = weight
        self._received = copy.deepcopy(situation.network).eval().requires_grad_(False)

    def inputs(self) -> Mapping[str, Tensor]:
        sent = distinct(sent_tensors(self._received))
        return {names.RECEIVED + name: tensor.detach().clone() for name, tensor in sent.items()}

    def loss(self, outputs: Tensor, given: Mapping[str, Tensor], base: Tensor) -> Tensor:
        state = {name: given[names.RECEIVED + name] for name in distinct(sent_tensors(self._received))}
        with torch.no_grad():
            answers = torch.func.functional_call(self._received, state, (given[names.INPUTS],))
        wanted = answers.softmax(1)
        divergence: Tensor = (wanted * (answers.log_softmax(1) - outputs.log_softmax(1))).sum(1).mean()
        return base + self._weight * divergence


class DrawnMaskedLoss(DrawnObjective):
    """Cross-entropy in which the outputs of classes without local examples are 0."""

    def __init__(self, situation: Situation) -> None:
        self._classes = situation.classes

    def inputs(self) -> Mapping[str, Tensor]:
        return {names.KNOWN: torch.ones(self._classes, dtype=torch.bool)}

    def loss(self, outputs: Tensor, given: Mapping[str, Tensor], base: Tensor) -> Tensor:
        known = given[names.KNOWN].unsqueeze(0)
        masked = torch.where(known, outputs, torch.zeros_like(outputs))
        return functional.cross_entropy(masked, given[names.LABELS])


class DrawnScaler(DrawnObjective):
    """Outputs of pruned layers divided by the share of their channels."""

    def __init__(self, situation: Situation) -> None:
        if situation.channel_map is not None:
            scale_pruned_layers(situation.network, situation.spec, situation.channel_map)


class DrawnStatistics(DrawnObjective):
    """Sums of each batch normalisation's inputs and of their squares [C], with the number of values."""

    def __init__(self, situation: Situation) -> None:
        self._sums: dict[str, Tensor] = {}
        for name, part in situation.network.named_modules():
            is_frozen = keeps_statistics(name, part, situation.trained)
            if isinstance(part, _BatchNorm) and part.running_mean is not None and not is_frozen:
                part.training, part.track_running_stats = True, False
                part.register_forward_pre_hook(partial(self._observe, name))

    def observations(self) -> Mapping[str, Tensor]:
        return dict(self._sums)

    def _observe(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        values = inputs[0].detach().double().transpose(0, 1).flatten(1)
        self._sums[names.COUNT + name] = torch.ones_like(values[0]).sum()
        self._sums[names.SUM + name] = values.sum(1)
        self._sums[names.SQUARES + name] = values.square().sum(1)


DRAWN: Mapping[str, Callable[..., DrawnObjective]] = {
    "attentive": DrawnAttention,
    "batch-statistics": DrawnStatistics,
    "distil": DrawnDistil,
    "masked-loss": DrawnMaskedLoss,
    "output-energy": DrawnEnergy,
    "scaler": DrawnScaler,
}
