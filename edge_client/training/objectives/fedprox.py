"""FedProx (Li et al. 2020, Federated Optimization in Heterogeneous Networks)."""

from collections.abc import Iterable
from typing import ClassVar

from edge_client.pruning.update_coordinates import ANCHOR
from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.objective import (
    Batch,
    BatchLoss,
    LocalObjective,
    StepPart,
    Tensors,
    TrainingContext,
)
from edge_client.training.objectives.parameters import checked_factor, tensor_for, trained_parameters


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
