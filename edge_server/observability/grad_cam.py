"""Grad-CAM (Selvaraju et al. 2017): which image regions a classification rests on."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from schemas.errors import ConfigError

Heat = NDArray[np.float32]

QUARTER = 0.25


def grad_cam(module: nn.Module, inputs: Tensor, classes: Tensor) -> Heat:
    """The heat [N, H, W] of each input's class at the last convolution; inputs [N, C, H, W], classes [N].

    Heat is scaled per image to a maximum of 1; an image without any stays 0.
    """
    seen: dict[str, Tensor] = {}
    hook = last_convolution(module).register_forward_hook(
        lambda layer, given, output: seen.__setitem__("maps", output)
    )
    module.eval()
    try:
        scores = module(inputs).gather(1, classes[:, None]).sum()
    finally:
        hook.remove()
    maps = seen["maps"]
    (gradient,) = torch.autograd.grad(scores, maps)
    weighted = (gradient.mean(dim=(2, 3), keepdim=True) * maps).sum(dim=1, keepdim=True)
    heat = functional.interpolate(torch.relu(weighted), inputs.shape[2:], mode="bilinear")[:, 0]
    highest = heat.amax(dim=(1, 2), keepdim=True)
    normal: Heat = (heat / highest.clamp_min(1e-12)).detach().numpy()
    return normal


def last_convolution(module: nn.Module) -> nn.Module:
    """The last 2-d convolution; raises `ConfigError` for a network without one."""
    found = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    if not found:
        raise ConfigError("Grad-CAM needs a network with convolutions")
    return found[-1]


def concentration(heat: Heat) -> float:
    """The mean share of heat in an image's hottest quarter; heat [N, H, W], images without heat left out."""
    flat = np.sort(heat.reshape(len(heat), -1), axis=1)[:, ::-1]
    warm = flat[flat.sum(axis=1) > 0]
    top = warm[:, : max(1, round(QUARTER * flat.shape[1]))]
    return float((top.sum(axis=1) / warm.sum(axis=1)).mean()) if len(warm) else 0.0
