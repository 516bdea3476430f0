"""Dropout with masks that are inputs of the graph, because a graph draws no random numbers."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from edge_client.training.step_graphs import names


class Masked(nn.Module):
    """Multiplies its inputs [B, ...] by `mask`, which the graph's caller draws."""

    mask: Tensor

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.register_buffer("mask", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


def mask_dropouts(network: nn.Module) -> dict[str, Masked]:
    """Replace the network's dropouts by `Masked`; returns them by name. Dropouts of probability 0 go."""
    found = {name: part for name, part in network.named_modules() if isinstance(part, _DropoutNd)}
    masked = {}
    for name, part in found.items():
        owner, _, attribute = name.rpartition(".")
        put: nn.Module = nn.Identity()
        if part.p:
            put = masked[name] = Masked(part.p)
        setattr(network.get_submodule(owner), attribute, put)
    return masked


def mask_shapes(
    network: nn.Module, masked: Mapping[str, Masked], input_shape: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """The shape of each mask without the batch axis, by its name in the graph."""
    shapes: dict[str, tuple[int, ...]] = {}
    hooks = [
        part.register_forward_pre_hook(
            lambda _, given, name=name: shapes.__setitem__(names.DROPOUT + name, tuple(given[0].shape[1:]))
        )
        for name, part in masked.items()
    ]
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(2, *input_shape))
    finally:
        network.train(training)
        for hook in hooks:
            hook.remove()
    return shapes
