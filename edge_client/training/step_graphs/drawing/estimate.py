"""Estimates a step graph that is not drawn yet, from one forward pass of its network in torch.

The constants were fitted to the graphs of the shipped networks: the estimated working memory is 0.97 to 1.23
times that of the drawn graph (tests/step_graphs/README.md), apart from `mlp`, which has a few kilobytes per
example.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edge_client.models.modes import normalises_batches
from edge_client.training.cost_model import kept_bytes

LARGEST = 1.25
"""Arrays as large as the largest one, besides those that the forward pass keeps for the backward pass."""
SHARE = 0.68
"""Their share that exists together with the columns of the largest convolution (`working_memory`)."""
PER_PARAMETER, PER_NORMALISATION = 1_100, 4_200
"""Bytes of a graph's file for each parameter and each normalisation."""
CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)
"""Layers for the gradients of whose kernels onnxruntime copies columns."""
NORMALISATIONS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class EstimatedStep:
    """The figures of a step graph, in bytes."""

    bytes_per_example: float
    smallest_batch: int
    size: int
    fixed_bytes: float = 0.0


def estimate_step(module: nn.Module, input_shape: tuple[int, ...]) -> EstimatedStep:
    """Estimate the step graph of `module`, which does not change."""
    few, more = (
        every + LARGEST * largest for every, largest in (kept_bytes(module, input_shape, n) for n in (2, 4))
    )
    each = (more - few) / 2
    normalisations = [part for part in module.modules() if isinstance(part, NORMALISATIONS)]
    others = len([*module.parameters()]) - sum(len([*part.parameters()]) for part in normalisations)
    return EstimatedStep(
        bytes_per_example=max(each, SHARE * each + _largest_columns(module, input_shape)),
        smallest_batch=2 if normalises_batches(module) else 1,
        size=PER_PARAMETER * others + PER_NORMALISATION * len(normalisations),
    )


def _largest_columns(module: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Bytes per example of the columns of the largest gradient of a kernel."""
    found = [0]

    def note(layer: Any, _: Any, outputs: Tensor) -> None:
        found.append(4 * layer.weight[0].numel() * outputs[0, 0].numel())

    traced = copy.deepcopy(module, {id(weight): weight for weight in module.parameters()}).eval()
    for layer in traced.modules():
        if isinstance(layer, CONVOLUTIONS):
            layer.register_forward_hook(note)
    with torch.no_grad():
        traced(torch.zeros(1, *input_shape))
    return max(found)
