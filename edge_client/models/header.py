"""Finds a network's header, the linear layer whose outputs are the class scores."""

from functools import lru_cache

import torch
from torch import Tensor, nn

from edge_client.models import build, modes
from schemas.errors import ConfigError
from schemas.values import ModelSpec


def header_name(module: nn.Module, input_shape: tuple[int, ...]) -> str:
    """The name of the header, found by one forward pass; the module does not change.

    Raises `ConfigError` if the outputs [B, classes] are not those of a linear layer.
    """
    made: dict[str, Tensor] = {}
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    hooks = [
        layer.register_forward_hook(lambda _, __, output, name=name: made.update({name: output}))
        for name, layer in layers
    ]
    like = next(module.parameters(), torch.zeros(()))
    try:
        with modes.evaluating(module), torch.no_grad():
            outputs = module(torch.zeros(1, *input_shape, dtype=like.dtype, device=like.device))
    finally:
        for hook in hooks:
            hook.remove()
    names = [name for name, output in made.items() if output is outputs]
    if not names or outputs.ndim != 2:
        raise ConfigError(
            f"network {type(module).__name__} has no header: "
            "its last layer must be a torch.nn.Linear that gives one score per class"
        )
    return names[-1]


@lru_cache(maxsize=8)
def header_of(model: ModelSpec) -> str:
    """The name of the header in the network `model`; raises `ConfigError` as `header_name` does."""
    return header_name(build.build_model(model), model.input_shape)
