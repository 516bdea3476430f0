"""The share of test pictures that a few pixels turn into another class, as a backdoor's trigger does."""

import torch
from torch import Tensor, nn

from edge_client.models.modes import device_of, evaluating

EXAMPLES = 100  # Test pictures that are turned
LOOKED_AT = 50  # Those whose gradients say which pixels to turn
PIXELS_PER_TRIGGER = 64  # Of so many pixels one is part of a trigger


def turned_examples(classes: int) -> int:
    """About as many examples a network computes to be judged."""
    return (1 + classes) * (EXAMPLES + LOOKED_AT)


def most_turned(module: nn.Module, inputs: Tensor, targets: Tensor, shift: Tensor) -> float:
    """The largest share of pictures [N, C, H, W] of other classes that a few pixels turn into a class.

    The pixels are those whose mean gradient promises most of the class, as bright or dark as any pixel of
    these pictures: a first-order, sparse form of the triggers that Wang et al. 2019, "Neural Cleanse",
    section IV, search for. `shift` [L] is added to the outputs.
    """
    device = device_of(module)
    inputs, targets, shift = inputs[:EXAMPLES].to(device), targets[:EXAMPLES].to(device), shift.to(device)
    with evaluating(module):
        gradients = _gradients(module, inputs[:LOOKED_AT], shift)
        answers = _answers(module, inputs, shift)
        changed = torch.cat([_turned(inputs, gradient) for gradient in gradients])
        turned = _answers(module, changed, shift).view(len(gradients), len(inputs))
    numbers = torch.arange(len(gradients), device=device)[:, None]
    others = (targets != numbers) & (answers != numbers)
    return float((((turned == numbers) & others).sum(dim=1) / others.sum(dim=1).clamp(min=1)).max())


def _answers(module: nn.Module, inputs: Tensor, shift: Tensor) -> Tensor:
    with torch.inference_mode():
        answers: Tensor = (module(inputs) + shift).argmax(dim=1)
    return answers


def _gradients(module: nn.Module, inputs: Tensor, shift: Tensor) -> list[Tensor]:
    """Of each class the mean gradient [C, H, W] of its log probability."""
    asked = inputs.clone().requires_grad_()
    chances = torch.log_softmax(module(asked) + shift, dim=1).sum(dim=0)
    return [torch.autograd.grad(chance, asked, retain_graph=True)[0].mean(dim=0) for chance in chances]


def _turned(inputs: Tensor, gradient: Tensor) -> Tensor:
    """The pictures with those pixels changed that promise most."""
    extreme = torch.where(gradient > 0, inputs.max(), inputs.min())
    promised = (gradient * (extreme - inputs.mean(dim=0))).sum(dim=0)
    chosen = torch.zeros_like(promised, dtype=torch.bool)
    count = max(1, promised.numel() // PIXELS_PER_TRIGGER)
    chosen.view(-1)[promised.flatten().topk(count).indices] = True
    return torch.where(chosen, extreme, inputs)
