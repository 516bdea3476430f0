"""Objectives that hold a device's model near the received one: its answers, or its parameters.

Learning without Forgetting (Li and Hoiem 2016), for a shared model that a device trains further; FedProx
(Li et al. 2020, Federated Optimization in Heterogeneous Networks).
"""

import copy
from collections.abc import Iterable
from typing import ClassVar

from edge_client.pruning.update_coordinates import ANCHOR
from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import (
    Batch,
    BatchLoss,
    LocalObjective,
    StepPart,
    Tensors,
    TrainingContext,
    checked_factor,
    tensor_for,
    trained_parameters,
)


class Distil(LocalObjective):
    """Add `weight` times the divergence KL(received || trained) of the answers to the device's examples.

    The received network answers in evaluation mode; its weights take memory once more.
    """

    labels = frozenset({"classes"})
    reads_outputs_only: ClassVar[bool] = True

    def __init__(self, *, weight: float = 1.0) -> None:
        self._weight = checked_factor("distil", "weight", weight)
        self._received: nn.Module | None = None

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        network = module if context.parts is None else context.parts.rest
        self._received = copy.deepcopy(network).eval().requires_grad_(False)
        return ()

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        assert self._received is not None
        with torch.no_grad():
            wanted = self._received(batch.inputs).softmax(1)
        trained = batch.outputs.log_softmax(1)
        return base + self._weight * torch.nn.functional.kl_div(trained, wanted, reduction="batchmean")

    def close(self) -> None:
        self._received = None


class Prox(LocalObjective):
    """Add mu / 2 * |w - w_received|^2 over the trained parameters (FedProx, eq. 2); mu = 0 is plain SGD.

    For w_received, the group `anchor` counts, which a device's own model has (Ditto), else the weights at the
    start.
    """

    reads_outputs_only: ClassVar[bool] = True

    def __init__(self, *, mu: float = 0.01) -> None:
        self._mu = checked_factor("prox", "mu", mu)
        self._pairs: dict[str, tuple[nn.Parameter, Tensor]] = {}

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        weights, anchor = trained_parameters(module), context.received.get(ANCHOR)
        self._pairs = {
            name: (w, w.detach().clone() if anchor is None else tensor_for(anchor, name, w))
            for name, w in weights.items()
        }
        return ()

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        return self._near(self._pairs.values(), base)

    def step_part(self, outputs: int) -> StepPart:
        def loss(weights: Tensors, own: Tensors, batch: BatchLoss, base: "Tensor") -> "Tensor":
            return self._near([(weights[name], start) for name, start in own.items()], base)

        return StepPart({name: start for name, (_, start) in self._pairs.items()}, loss)

    def _near(self, pairs: "Iterable[tuple[Tensor, Tensor]]", base: "Tensor") -> "Tensor":
        if self._mu == 0:
            return base
        squares = torch.stack([(w - start).square().sum() for w, start in pairs])
        return base + self._mu / 2 * squares.sum()

    def close(self) -> None:
        self._pairs = {}
