"""Make `import torchvision` work beside a CPU-only torch.

The registry's torchvision wheel carries an extension that is compiled for CUDA. Beside a CPU-only torch it
does not load, its operators stay undeclared, and torchvision's own import then stops at the first of them.
Networks need none of these operators, so declaring them is enough.
"""

from __future__ import annotations

import importlib
import sys

import torch
from torch import library

OPERATORS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def torchvision_ready() -> None:
    """Import torchvision, declaring its missing operators if that is what stops it.

    Does nothing on a second call or where the extension loads; `ImportError` when torchvision is absent.
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
