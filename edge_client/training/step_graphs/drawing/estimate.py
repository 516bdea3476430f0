"""Estimates a step graph that is not drawn yet, from one forward pass of its network in torch.

A run's estimated memory is 0.86 to 1.10 times that of the drawn graph for the shipped networks of
convolutions with 5x5 kernels (tests/step_graphs/README.md).
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edge_client.models.modes import evaluating, smallest_batch, training_only
from edge_client.training.cost_model import kept_bytes
from edge_client.training.step_graphs.drawing.drawn_pools import DrawnPools
from edge_client.training.step_graphs.drawing.frequencies import Geometry, is_faster, spectrum_bytes

PER_PARAMETER, PER_NORMALISATION, PER_SPECTRUM = 1_100, 4_200, 19_000
"""Bytes of a graph's file for each parameter, each normalisation, and each convolution in the frequency
domain. Fitted."""
PER_SPECTRUM_BYTE = 1.5  # working memory of such a convolution for each byte of its kernel's spectrum; fitted
NORMALISATIONS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class EstimatedStep:
    """The figures of a step graph, in bytes."""

    bytes_per_example: float
    smallest_batch: int
    size: int
    fixed_bytes: float = 0.0


def estimate_step(
    module: nn.Module, input_shape: tuple[int, ...], trained: Collection[str] | None = None
) -> EstimatedStep:
    """Estimate the step graph of `module`, of which the arrays `trained` change, all by default.

    A run has what the forward pass keeps for the backward pass, with poolings as they are drawn and without
    their indices, and one more array as large as the largest that torch keeps.
    """
    with evaluating(module), training_only(module, trained):
        few, more = (
            kept_bytes(module, input_shape, examples, within=DrawnPools, indices=False)[0]
            for examples in (2, 4)
        )
        _, largest = kept_bytes(module, input_shape, 2, indices=False)
    normalisations = [part for part in module.modules() if isinstance(part, NORMALISATIONS)]
    others = len([*module.parameters()]) - sum(len([*part.parameters()]) for part in normalisations)
    spectra = _spectra(module, input_shape)
    return EstimatedStep(
        bytes_per_example=(more - few + largest) / 2,
        smallest_batch=smallest_batch(module, trained),
        size=PER_PARAMETER * others + PER_NORMALISATION * len(normalisations) + PER_SPECTRUM * len(spectra),
        fixed_bytes=PER_SPECTRUM_BYTE * sum(spectra),
    )


def _spectra(module: nn.Module, input_shape: tuple[int, ...]) -> list[int]:
    """Bytes of the kernel's spectrum, for each convolution that is drawn in the frequency domain."""
    probe = copy.deepcopy(module, {id(weight): weight for weight in module.parameters()}).eval()
    found: list[int] = []

    def look(part: nn.Conv2d, inputs: tuple[Tensor, ...]) -> None:
        maps, kernel = inputs[0].shape, part.weight.shape
        if not isinstance(part.padding, str):
            geometry = Geometry(part.stride, part.padding, part.dilation, part.groups)
            if is_faster(maps, kernel, geometry):
                found.append(spectrum_bytes(maps, kernel))

    for part in probe.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_pre_hook(look)
    with torch.no_grad():
        probe(torch.zeros(2, *input_shape))
    return found
