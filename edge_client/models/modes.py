"""Mode, device, frozen part and batch normalisation of a module."""

import contextlib
from collections.abc import Collection, Iterator
from itertools import accumulate

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode inside, then restore the mode of every part.

    A part that keeps what it computes of its weights in evaluation, as attention with relative positions
    does, drops it when it is told to train: before, since the weights may have changed, and after.
    """
    modes = {part: part.training for part in module.modules()}
    module.train()
    module.eval()
    try:
        yield
    finally:
        module.train()
        for part, mode in modes.items():
            part.training = mode


def device_of(module: nn.Module) -> torch.device:
    """The device of the module's parameters; the CPU if it has none."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


@contextlib.contextmanager
def training_only(module: nn.Module, trained: Collection[str] | None) -> Iterator[None]:
    """Set training mode inside, in which only the arrays `trained` change (None: all).

    Other parameters get no gradient, and the parts of `frozen_parts` are in evaluation mode. Afterwards
    parameters are as before.
    """
    frozen = start_training(module, trained)
    try:
        yield
    finally:
        for weight in frozen:
            weight.requires_grad_(True)


def start_training(module: nn.Module, trained: Collection[str] | None) -> list[nn.Parameter]:
    """As `training_only`, for good; returns the parameters that have no gradient any more."""
    named = [] if trained is None else [*module.named_parameters()]
    frozen = [weight for name, weight in named if name not in (trained or ()) and weight.requires_grad]
    module.train()
    for weight in frozen:
        weight.requires_grad_(False)
    for part in frozen_parts(module, trained):
        part.eval()
    return frozen


def frozen_parts(module: nn.Module, trained: Collection[str] | None) -> Iterator[nn.Module]:
    """What runs in evaluation mode while the arrays `trained` (None: all) are trained.

    These are batch normalisations whose running statistics are kept, and layers and blocks with weights of
    which none is trained: what is random in them is there for their own training.
    """
    if trained is None:
        return
    trained = frozenset(trained)
    changing = {prefix for name in trained for prefix in accumulate(name.split("."), "{}.{}".format)}
    last = "."
    for name, part in module.named_modules():
        # What is in a part comes after it, and is as it is.
        if name.startswith(last):
            continue
        is_frozen = name and name not in changing and next(part.parameters(), None) is not None
        if is_frozen or keeps_statistics(name, part, trained):
            last = f"{name}."
            yield part


def keeps_statistics(name: str, part: nn.Module, trained: Collection[str] | None) -> bool:
    """Whether a part is a batch normalisation that keeps its running statistics."""
    if not isinstance(part, _BatchNorm) or part.running_mean is None or trained is None:
        return False
    return f"{name}.running_mean" not in trained


def normalises_batches(module: nn.Module, trained: Collection[str] | None = None) -> bool:
    """Whether training the arrays `trained` (None: all) normalises by the statistics of batches."""
    trained = None if trained is None else frozenset(trained)
    parts = ((name, part) for name, part in module.named_modules() if isinstance(part, _BatchNorm))
    return any(not keeps_statistics(name, part, trained) for name, part in parts)


def smallest_batch(module: nn.Module, trained: Collection[str] | None = None) -> int:
    """Examples that a step needs: two with batch normalisation, since a single one has no statistics."""
    return 2 if normalises_batches(module, trained) else 1
