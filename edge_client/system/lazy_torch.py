"""torch, imported when it is first used: that takes more than a second of processor time.

Modules that a program reads only to learn what there is, such as the local objectives, import it from here.
"""

import importlib
from typing import Any


class LazyModule:
    """A module that is imported with its first attribute."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


torch = LazyModule("torch")
