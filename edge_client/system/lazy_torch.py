"""torch, imported when it is first used: that takes more than a second of processor time.

Modules that a program reads only to learn what there is, such as the local objectives, import it from here.
`Tensor` and `nn` are for annotations in quotes alone.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["Tensor", "nn", "torch"]


class LazyTorch:
    """The module, imported with its first attribute."""

    def __getattr__(self, attribute: str) -> Any:
        import torch

        return getattr(torch, attribute)


if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
else:
    torch = LazyTorch()
    Tensor = nn = Any
