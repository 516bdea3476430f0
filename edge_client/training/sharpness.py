"""Sharpness-aware steps (SAM, Foret et al. 2021): gradients at weights that were moved uphill.

A step at weights w takes the gradient at w + radius * g / |g|, where g is the batch's gradient at w, and
|g| its norm over all parameters. Minima whose surroundings are low too generalise better; in federated
training Qu et al. 2022 and Caldarola et al. 2022 measured it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from edge_client.training.epochs import SMALLEST_NORM
from edge_client.training.optimizers import Optimizer


def step_gradients(
    module: nn.Module, optimizer: Optimizer, passes: Callable[[], Tensor], *, radius: float
) -> Tensor:
    """Leave the gradients of a step in the module's parameters; returns the loss at the weights themselves.

    `passes` run forward and backward and return the loss. A radius of 0 makes a plain step.
    """
    optimizer.zero_grad()
    loss = passes()
    if radius:
        moved = [weight for weight in module.parameters() if weight.grad is not None]
        gradients = [weight.grad for weight in moved if weight.grad is not None]
        with uphill(moved, gradients, list(module.buffers()), radius=radius):
            optimizer.zero_grad()
            passes()
    return loss


@contextmanager
def restore_after(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Copy the tensors' numbers back after."""
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


@contextmanager
def uphill(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], buffers: Sequence[Tensor], *, radius: float
) -> Iterator[None]:
    """Move the weights by `radius` along their gradients inside; weights and buffers are as before after it.

    Running statistics are those of the weights themselves.
    """
    with restore_after((*weights, *buffers)):
        with torch.no_grad():
            norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
            factor = radius / torch.linalg.vector_norm(norms).clamp_min(SMALLEST_NORM)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.add_(gradient * factor)
        yield
