"""The loss of a model with the scales and the biases of its outputs that fit the test data best."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]

STEPS = 100
HALVINGS = 20
LIKELY = (0.01, 100.0)  # Scales of a fit from which another one starts: beyond them the loss is flat
FLAT = 1e-3  # Largest derivative at which a minimum is found
DECREASE = 1e-4  # Least decrease of a step, as a share of what the slope promises (Armijo)
PRIOR = 1e-3  # Weight of the mean square of the biases: that of a class without test examples stays finite
ALIKE = 1.0  # Weight of the variance of the logarithms of the scales: at 0 flipped labels are forgiven, too


class Minimum(NamedTuple):
    """The `point` [n] of a smallest value, and the `inverse` [n, n] of the second derivatives if known."""

    point: Tensor
    inverse: Tensor | None = None


class Calibration(NamedTuple):
    """The smallest `loss` of `outputs * scale + bias`, that scale and bias [L], and where they were found."""

    loss: float
    scale: Tensor
    bias: Tensor
    minimum: Minimum | None = None

    def apply(self, outputs: Tensor) -> Tensor:
        return outputs * self.scale.to(outputs) + self.bias.to(outputs)


def calibrate(
    loss: Loss, outputs: Tensor, targets: Tensor, similar: Calibration | None = None
) -> Calibration:
    """Fit scales and biases of outputs [N, L]; the loss is infinite if they are not finite.

    A fit of `similar` outputs makes it several times faster, but not one of a model that answers nothing.

    Honest devices with unlike data move the prior and the confidence of a model: its biases and the scale of
    its outputs, one of a single class that of this output alone. A dishonest one makes it mistake inputs for
    others, which no bias and no scale above 0 repairs (vector scaling: Guo et al. 2017, "On Calibration of
    Modern Neural Networks", section 4.2).
    """
    if not bool(outputs.isfinite().all()):
        return Calibration(math.inf, torch.ones(outputs.shape[1]), torch.zeros(outputs.shape[1]))
    outputs = outputs.double()
    targets = targets.double() if targets.is_floating_point() else targets

    def value(point: Tensor) -> Tensor:
        scale, bias = point.chunk(2)
        unlike = PRIOR * bias.square().mean() + ALIKE * scale.var(correction=0)
        return loss(outputs * scale.exp() + bias, targets) + unlike

    start = None
    if similar is not None and LIKELY[0] < similar.scale.min() and similar.scale.max() < LIKELY[1]:
        start = similar.minimum
    found, minimum = minimize(value, start or Minimum(torch.zeros(2 * outputs.shape[1], dtype=outputs.dtype)))
    scale, bias = minimum.point.chunk(2)
    return Calibration(found if math.isfinite(found) else math.inf, scale.exp(), bias, minimum)


def minimize(value: Callable[[Tensor], Tensor], start: Minimum) -> tuple[float, Minimum]:
    """The smallest value found from `start`, and where (BFGS: Nocedal & Wright 2006, algorithm 6.1).

    `torch.optim.LBFGS` finds the same, and imports 800 modules and 80 MB for it.
    """
    point, inverse = start
    one = torch.eye(len(point), dtype=point.dtype)
    found, slope = _value_and_gradient(value, point)
    for _ in range(STEPS):
        if not slope.abs().max() > FLAT:
            break
        direction = -slope / slope.abs().sum().clamp(min=1.0) if inverse is None else -inverse @ slope
        for _ in range(HALVINGS):
            after, after_slope = _value_and_gradient(value, point + direction)
            if after <= found + DECREASE * slope @ direction:
                break
            direction = direction / 2
        else:
            break
        change = after_slope - slope
        point, found, slope = point + direction, after, after_slope
        bend = change @ direction
        if bend > 0:
            if inverse is None:
                inverse = one * (bend / (change @ change))
            turned = one - torch.outer(direction, change) / bend
            inverse = turned @ inverse @ turned.T + torch.outer(direction, direction) / bend
    return float(found), Minimum(point, inverse)


def _value_and_gradient(value: Callable[[Tensor], Tensor], point: Tensor) -> tuple[Tensor, Tensor]:
    point = point.detach().requires_grad_()
    found = value(point)
    return found.detach(), torch.autograd.grad(found, point)[0]
