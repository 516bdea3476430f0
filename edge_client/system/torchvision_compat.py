"""Makes `import torchvision` work with a CPU-only torch, from wherever it is imported.

The default torchvision wheel contains an extension compiled for CUDA. With a CPU-only torch the extension
does not load, its operators stay undeclared, and torchvision's import fails at the first of them. Networks
need none of these operators, so declaring them suffices. Nothing is imported before torchvision is.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_SUPPRESSION = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
OPERATORS = {"torchvision::nms": _SUPPRESSION, "torchvision::qnms": _SUPPRESSION}


def guard_torchvision() -> None:
    """From now on, declare torchvision's missing operators where they make its import fail."""
    if not any(isinstance(finder, _Guard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Guard())


class _Guard:
    """Finds torchvision where the other finders do."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None" = None, target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "torchvision":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        spec = next(filter(None, found), None)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module
            # A loader of its own would have to repeat all that loaders of files can do.
            spec.loader.exec_module = lambda module: _run(run, module)  # type: ignore[method-assign]
        return spec


def _run(run: "Callable[[ModuleType], None]", module: "ModuleType") -> None:
    try:
        run(module)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        import torch
        from torch import library

        for operator, signature in OPERATORS.items():
            if not hasattr(torch.ops.torchvision, operator.partition("::")[2]):
                library.define(operator, signature)
        run(module)
