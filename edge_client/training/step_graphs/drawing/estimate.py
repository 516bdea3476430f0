"""Estimates a step graph that is not drawn yet, from one forward pass of its network in torch.

The estimated working memory is 0.86 to 1.21 times that of the drawn graph for the shipped networks
(tests/step_graphs/README.md), apart from `mlp`, which has a few kilobytes per example.
"""

from dataclasses import dataclass

from torch import nn

from edge_client.models.modes import normalises_batches
from edge_client.training.cost_model import kept_bytes

PER_PARAMETER, PER_NORMALISATION = 1_100, 4_200
"""Bytes of a graph's file for each parameter and each normalisation. Fitted."""
NORMALISATIONS = (nn.modules.batchnorm._BatchNorm, nn.GroupNorm, nn.LayerNorm)


@dataclass(frozen=True)
class EstimatedStep:
    """The figures of a step graph, in bytes."""

    bytes_per_example: float
    smallest_batch: int
    size: int
    fixed_bytes: float = 0.0


def estimate_step(module: nn.Module, input_shape: tuple[int, ...]) -> EstimatedStep:
    """Estimate the step graph of `module`, which does not change.

    A run has what the forward pass keeps for the backward pass, and one more array as large as the largest.
    """
    few, more = (sum(kept_bytes(module, input_shape, examples)) for examples in (2, 4))
    normalisations = [part for part in module.modules() if isinstance(part, NORMALISATIONS)]
    others = len([*module.parameters()]) - sum(len([*part.parameters()]) for part in normalisations)
    return EstimatedStep(
        bytes_per_example=(more - few) / 2,
        smallest_batch=2 if normalises_batches(module) else 1,
        size=PER_PARAMETER * others + PER_NORMALISATION * len(normalisations),
    )
