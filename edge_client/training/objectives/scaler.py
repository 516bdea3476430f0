"""HeteroFL's scaler (Diao et al. 2021, section 3)."""

from collections.abc import Iterable
from functools import partial

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from edge_client.training.objectives.objective import LocalObjective, TrainingContext


class Scaler(LocalObjective):
    """Divide the outputs of every pruned layer, in training, by the share of the channels that are kept.

    As with inverted dropout, the next layer then sees outputs of the full network's scale.
    """

    def __init__(self) -> None:
        self._hooks: list[RemovableHandle] = []

    def setup(self, module: nn.Module, context: TrainingContext) -> Iterable[nn.Parameter]:
        if context.channel_map is None:
            return ()
        layers = dict(module.named_modules())
        for name in context.spec.kept:
            group = context.channel_map.groups[name]
            share = context.spec.count(name, group.channels) / group.channels
            self._hooks += [
                layers[layer].register_forward_hook(partial(_divide, share)) for layer in group.layers
            ]
        return ()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _divide(share: float, layer: nn.Module, inputs: object, outputs: Tensor) -> Tensor:
    return outputs / share if layer.training else outputs
