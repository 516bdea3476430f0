"""Static batch normalisation: a federated pass of statistics (HeteroFL, Diao et al. 2021, section 3)."""

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives import base
from schemas.tensors.arrays import Groups


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
