"""The loss of a model with the scale and the biases of its outputs that fit the test data best."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]

STEPS = 40
PRIOR = 1e-3
"""Weight of the mean square of the biases: that of a class without test examples stays finite."""


class Calibration(NamedTuple):
    """The smallest `loss` of `(outputs + shift) * scale`, and that shift [L]."""

    loss: float
    shift: Tensor


def calibrate(loss: Loss, outputs: Tensor, targets: Tensor) -> Calibration:
    """Fit scale and shift of outputs [N, L]; the loss is infinite if they are not finite.

    Honest devices with unlike data move the prior and the confidence of a model: its biases and the scale of
    its outputs. A dishonest one makes it mistake inputs for others, which no bias and no scale repairs
    (temperature and bias: Guo et al. 2017, "On Calibration of Modern Neural Networks", section 4.2).
    """
    if not bool(outputs.isfinite().all()):
        return Calibration(math.inf, torch.zeros(outputs.shape[1]))
    outputs = outputs.double()
    targets = targets.double() if targets.is_floating_point() else targets
    bias = torch.zeros(outputs.shape[1], dtype=outputs.dtype, requires_grad=True)
    scale = torch.zeros(1, dtype=outputs.dtype, requires_grad=True)
    fit = torch.optim.LBFGS([bias, scale], max_iter=STEPS, tolerance_grad=1e-3, line_search_fn="strong_wolfe")

    def calibrated() -> Tensor:
        return loss(outputs * scale.exp() + bias, targets) + PRIOR * bias.square().mean()

    def step() -> Tensor:
        fit.zero_grad()
        found = calibrated()
        found.backward()  # type: ignore[no-untyped-call]
        return found.detach()

    fit.step(step)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        found, shift = float(calibrated()), (bias / scale.exp()).float()
    return Calibration(found if math.isfinite(found) else math.inf, shift)
