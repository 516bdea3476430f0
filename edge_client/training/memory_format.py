"""Channels-last memory layout of weights while a network runs on a CPU.

oneDNN's kernels use this layout and otherwise convert at every layer (`python -m tests.benchmarks layout`
measures the cost). Results differ only by the order of sums. What a convolution gives has that layout too,
and a user's network may refuse it with `view`: such a network keeps the default layout.
"""

import contextlib
import copy
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, fx, nn

from edge_client.models.attributes import seed_generators, users_parts

PROBES = 2  # examples of a trial, since batch normalisation needs two


@contextlib.contextmanager
def channels_innermost(module: nn.Module, examples: Tensor, *, partly: bool = False) -> Iterator[None]:
    """Use channels-last weights of convolutions inside, if that helps; restore the default layout after.

    Some of `examples` are tried once on a network of a user's own. With group normalisation a network that is
    `partly` trained keeps the default layout, since torch 2.13 may end the process otherwise.
    """
    crashes = partly and any(isinstance(part, nn.GroupNorm) for part in module.modules())
    weights = [] if crashes else _weights(module)
    try:
        _lay(weights, torch.channels_last)
        if weights and not _takes_layout(module, examples):
            _lay(weights, torch.contiguous_format)
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


_tried: WeakKeyDictionary[nn.Module, dict[bool, bool]] = WeakKeyDictionary()
"""Whether the layout suits a network, in training and in evaluation."""


def _takes_layout(module: nn.Module, examples: Tensor) -> bool:
    """Whether the network runs with the layout; torch's and this package's own layers all do.

    A traced part may be one of a user's network.
    """
    tried = _tried.setdefault(module, {})
    if module.training not in tried and len(examples):
        own = users_parts(module) or any(isinstance(part, fx.GraphModule) for part in module.modules())
        tried[module.training] = not own or not _is_refused(module, examples[:PROBES])
    return tried.get(module.training, True)


def _is_refused(module: nn.Module, examples: Tensor) -> bool:
    """Whether a forward pass of a copy with the same weights meets a `view` that refuses the layout."""
    try:
        trial = copy.deepcopy(module, {id(weight): weight for weight in module.parameters()})
        with seed_generators(0), torch.no_grad():
            trial(examples)
    except Exception as error:
        # Any other error is raised again by the pass that is wanted, where it is understood.
        return "view size is not compatible" in str(error)
    return False
