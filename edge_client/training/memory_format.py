"""How a network's weights lie in memory while it works: channels innermost, on a processor.

oneDNN's kernels take pictures that way, and turn them back and forth at every layer where they do not lie so
(`python -m tests.benchmarks layout` says what that costs). What is computed is the same but for the order in
which sums are taken.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def channels_innermost(module: nn.Module) -> Iterator[None]:
    """Lay the weights of convolutions so meanwhile, where that is of use; afterwards as networks are made."""
    weights = _weights(module)
    try:
        _lay(weights, torch.channels_last)
        yield
    finally:
        _lay(weights, torch.contiguous_format)


def _weights(module: nn.Module) -> list[Tensor]:
    """Of convolutions on the processor; none where torch has no kernels that ask for them."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return []
    return [one for one in module.parameters() if one.ndim == 4 and one.device.type == "cpu"]


def _lay(weights: list[Tensor], memory_format: torch.memory_format) -> None:
    for weight in weights:
        # Not `contiguous`: it leaves a weight of one channel as it is, and what follows goes by its strides.
        weight.data = weight.data.to(memory_format=memory_format)
