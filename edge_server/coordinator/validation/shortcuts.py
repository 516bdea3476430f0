"""The share of test pictures that a few pixels turn into another class, as a backdoor's trigger does."""

import torch
from torch import Tensor, nn

from edge_client.models.modes import device_of, evaluating

EXAMPLES = 100
"""Test pictures that are turned."""
LOOKED_AT = 50
"""Those whose gradients say which pixels to turn."""
PIXELS_PER_TRIGGER = 64
"""Of so many pixels one is part of a trigger."""


def turned_examples(classes: int) -> int:
    """About as many examples a network computes to be judged."""
    return (1 + classes) * (EXAMPLES + LOOKED_AT)


def most_turned(module: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """The largest share of pictures [N, C, H, W] of other classes that a few pixels turn into a class.

    The pixels are those whose mean gradient promises most of the class, as bright or dark as any pixel of
    these pictures (a first-order, sparse form of the triggers that Wang et al. 2019, "Neural Cleanse",
    section IV, search for).
    """
    device = device_of(module)
    inputs, targets = inputs[:EXAMPLES].to(device), targets[:EXAMPLES].to(device)
    with evaluating(module):
        outputs, gradients = _gradients(module, inputs[:LOOKED_AT])
        answers = _answers(module, inputs)
        return max(
            _turned(module, inputs[(targets != number) & (answers != number)], gradients[number], number)
            for number in range(outputs)
        )


def _answers(module: nn.Module, inputs: Tensor) -> Tensor:
    with torch.inference_mode():
        return module(inputs).argmax(dim=1)  # type: ignore[no-any-return]


def _gradients(module: nn.Module, inputs: Tensor) -> tuple[int, list[Tensor]]:
    """The number of classes, and of each the mean gradient [C, H, W] of its log probability."""
    asked = inputs.clone().requires_grad_()
    chances = torch.log_softmax(module(asked), dim=1)
    count = chances.shape[1]
    return count, [
        torch.autograd.grad(chances[:, number].sum(), asked, retain_graph=True)[0].mean(dim=0)
        for number in range(count)
    ]


def _turned(module: nn.Module, inputs: Tensor, gradient: Tensor, number: int) -> float:
    """The share of these pictures that are called the class `number` once some pixels are changed."""
    if not len(inputs):
        return 0.0
    least, most = inputs.min(), inputs.max()
    extreme = torch.where(gradient > 0, most, least)
    promised = (gradient * (extreme - inputs.mean(dim=0))).sum(dim=0)
    count = max(1, promised.numel() // PIXELS_PER_TRIGGER)
    turned = torch.zeros(promised.numel(), dtype=torch.bool)
    turned[promised.flatten().topk(count).indices] = True
    changed = torch.where(turned.view(promised.shape), extreme, inputs)
    return float((_answers(module, changed) == number).float().mean())
