"""HeteroFL's masked cross-entropy for labels that a device lacks (Diao et al. 2021, section 3)."""

from collections.abc import Iterable
from typing import ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.objective import (
    Batch,
    BatchLoss,
    LocalObjective,
    StepPart,
    Tensors,
    TrainingContext,
)


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
