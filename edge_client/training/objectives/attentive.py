"""ATTENDING on a device: attentive training (section 3.1), scores of channels (4.3; Li et al. 2017)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import (
    Batch,
    LocalObjective,
    StepPart,
    Tensors,
    TrainingContext,
    array_of,
)
from schemas.submodel import ChannelMap
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


if TYPE_CHECKING:
    from edge_client.models.frozen_part import SplitNetwork
    from edge_client.pruning.attention import Attached


class Attentive(LocalObjective):
    """Train with attention modules behind the target layers (ATTENDING, Algorithm 1, lines 1-6 and 13).

    The group `attention` sends the last epoch's scores, {layer: [C]} (eq. 6); with `lowest` one minus each
    score, so that the least attended channels rank first.
    """

    sends = frozenset({"attention"})
    reads_outputs_only: ClassVar[bool] = True

    def __init__(self, *, layers: tuple[str, ...], lowest: bool = False) -> None:
        self._layers, self._lowest = layers, lowest
        self.attached: Attached | None = None
        self._observed = False

    def why_before(
        self, parts: "SplitNetwork", module: "nn.Module", received: Groups, channel_map: ChannelMap | None
    ) -> str:
        before = [layer for layer in self._layers if not parts.reruns(layer)]
        return f"needs the frozen '{before[0]}'" if before else ""

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        from edge_client.pruning.attention import attach

        self.attached = attach(module, self._layers)
        return tuple(self.attached.parameters())

    def start_epoch(self) -> None:
        if self.attached is not None:
            self.attached.reset()

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        if self.attached is not None:
            self.attached.observe()
            self._observed = True
        return base

    def step_part(self, outputs: int) -> StepPart:
        attached = self.attached
        assert attached is not None

        def take(sums: Tensors, examples: int) -> None:
            attached.set_totals(sums, examples)
            self._observed = True

        return StepPart(extra=attached.modules, values=attached.take_last, take=take)

    def finish(self) -> Groups:
        # Without a forward pass there are no scores, only zeros.
        if self.attached is None or not self._observed:
            return {}
        scores = self.attached.scores()
        return {"attention": {name: 1 - array for name, array in scores.items()} if self._lowest else scores}

    def state(self) -> Mapping[str, Any]:
        assert self.attached is not None
        return {"attached": self.attached.state(), "observed": self._observed}

    def resume(self, state: Mapping[str, Any]) -> None:
        assert self.attached is not None
        self.attached.resume(state["attached"])
        self._observed = state["observed"]

    def close(self) -> None:
        if self.attached is not None:
            self.attached.remove()
            self.attached = None
