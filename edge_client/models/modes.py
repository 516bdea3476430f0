"""The mode of a module: training or evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode meanwhile; every part gets its own mode back, for some are frozen on purpose."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode
