"""Torch's exporter looks up all its operators for each graph; tests, which draw many, look them up once."""

import contextlib
import sys
from functools import cache
from typing import Any


def look_up_operators_once() -> None:
    """Keep the exporter's table of operators for all graphs of this process; each graph gets a copy."""
    if "torch.onnx" not in sys.modules:
        return
    import torch

    export = torch.onnx.export

    def with_known_operators(*given: Any, **named: Any) -> Any:
        # A release of torch that has no such table draws as it does.
        with contextlib.suppress(ImportError, AttributeError):
            _keep_table()
        with contextlib.suppress(ImportError, AttributeError):
            _keep_operators()
        return export(*given, **named)

    torch.onnx.export = with_known_operators


@cache
def _keep_table() -> None:
    # Loaded with the first graph: it imports the exporter, which takes a second.
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    find = cache(ONNXRegistry.from_torchlib)

    def table(*given: Any, **named: Any) -> ONNXRegistry:
        found, copy = find(*given, **named), ONNXRegistry()
        vars(copy).update(vars(found))
        copy.functions = {name: [*functions] for name, functions in found.functions.items()}
        return copy

    ONNXRegistry.from_torchlib = staticmethod(table)


@cache
def _keep_operators() -> None:
    # Each graph fills `torch.ops` 50 times with all operators that the dispatcher knows.
    from torch._export import utils

    utils._materialize_cpp_cia_ops = cache(utils._materialize_cpp_cia_ops)
