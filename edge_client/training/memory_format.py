"""Channels-last memory layout of weights while a network runs on a CPU.

oneDNN's kernels use this layout and otherwise convert at every layer (`python -m tests.benchmarks layout`
measures the cost). Results differ only by the order of sums.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def channels_innermost(module: nn.Module) -> Iterator[None]:
    """Use channels-last weights of convolutions inside, if that helps; restore the default layout after."""
    weights = _weights(module)
    try:
        _lay(weights, torch.channels_last)
        yield
    finally:
        _lay(weights, torch.contiguous_format)


def _weights(module: nn.Module) -> list[Tensor]:
    """The weights of convolutions on the CPU; none if torch has no oneDNN."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return []
    return [weight for weight in module.parameters() if weight.ndim == 4 and weight.device.type == "cpu"]


def _lay(weights: list[Tensor], memory_format: torch.memory_format) -> None:
    for weight in weights:
        # `contiguous` would not change the strides of a weight with one channel.
        weight.data = weight.data.to(memory_format=memory_format)
