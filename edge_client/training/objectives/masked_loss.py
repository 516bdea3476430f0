"""HeteroFL's masked cross-entropy for labels that a device lacks (Diao et al. 2021, section 3)."""

from collections.abc import Iterable
from typing import ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.objective import Batch, LocalObjective, TrainingContext


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
        assert self._own is not None
        known = torch.zeros(batch.outputs.shape[1], dtype=torch.bool, device=batch.outputs.device)
        known[self._own] = True
        return torch.nn.functional.cross_entropy(batch.outputs.masked_fill(~known, 0), batch.labels)

    def close(self) -> None:
        self._own = None
