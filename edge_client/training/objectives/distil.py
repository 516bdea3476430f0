"""Learning without Forgetting (Li and Hoiem 2016), for a shared model that a device trains further.

Yu et al. 2020, Salvaging Federated Learning by Local Adaptation, section 3.2, with temperature 1.
"""

import copy
from collections.abc import Iterable
from typing import ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext, checked_factor


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
