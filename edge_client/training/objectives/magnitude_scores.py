"""Scores of channels by the magnitude of their weights (ATTENDING, section 4.3; Li et al. 2017)."""

from collections.abc import Iterable
from typing import ClassVar

from edge_client.system.lazy_torch import nn, torch
from edge_client.training.objectives.objective import LocalObjective, StepPart, TrainingContext
from edge_client.training.objectives.parameters import array_of
from schemas.tensors.arrays import Groups


class MagnitudeScores(LocalObjective):
    """Rank channels by the L1 norm of their weights after training.

    The group `attention` sends the norms {layer: [C]}, divided by the layer's largest.
    """

    sends = frozenset({"attention"})
    reads_outputs_only: ClassVar[bool] = True

    def __init__(self, *, layers: tuple[str, ...]) -> None:
        self._layers = layers
        self._weights: dict[str, nn.Parameter] = {}

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        parameters = dict(module.named_parameters())
        self._weights = {layer: parameters[f"{layer}.weight"] for layer in self._layers}
        return ()

    def finish(self) -> Groups:
        tiny = torch.finfo(torch.float32).tiny
        with torch.no_grad():
            norms = {layer: weight.abs().flatten(1).sum(1) for layer, weight in self._weights.items()}
            shares = {layer: norm / norm.max().clamp(min=tiny) for layer, norm in norms.items()}
        return {"attention": {layer: array_of(share) for layer, share in shares.items()}}

    def step_part(self, outputs: int) -> StepPart:
        return StepPart()

    def close(self) -> None:
        self._weights = {}
