"""Mode, device and batch normalisation of a module."""

import contextlib
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode inside, then restore the mode of every part."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def device_of(module: nn.Module) -> torch.device:
    """The device of the module's parameters; the CPU if it has none."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


def normalises_batches(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def smallest_batch(module: nn.Module) -> int:
    """Examples that a step needs: two with batch normalisation, since a single one has no statistics."""
    return 2 if normalises_batches(module) else 1
