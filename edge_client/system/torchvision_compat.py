"""Makes `import torchvision` work with a CPU-only torch.

The default torchvision wheel contains an extension compiled for CUDA. With a CPU-only torch the extension
does not load, its operators stay undeclared, and torchvision's import fails at the first of them. Networks
need none of these operators, so declaring them suffices.
"""

import importlib
import sys

import torch
from torch import library

OPERATORS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def torchvision_ready() -> None:
    """Import torchvision, and declare its missing operators if they make the import fail.

    A second call has no effect, nor if the extension loads; `ImportError` if torchvision is not installed.
    """
    if "torchvision" in sys.modules:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        _declare_missing()
        importlib.import_module("torchvision")


def _declare_missing() -> None:
    for operator, signature in OPERATORS.items():
        if not hasattr(torch.ops.torchvision, operator.partition("::")[2]):
            library.define(operator, signature)
