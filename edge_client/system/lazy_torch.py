"""torch, imported when it is first used: that takes more than a second of processor time.

Modules that a program reads only to learn what there is, such as the local objectives, import it from here.
"""

from typing import Any


class LazyTorch:
    """The module, imported with its first attribute."""

    def __getattr__(self, attribute: str) -> Any:
        import torch

        return getattr(torch, attribute)


torch = LazyTorch()
