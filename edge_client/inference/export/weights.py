"""The weights of a torch module in an ONNX model."""

from typing import Any

import onnx
import torch
from torch import Tensor, nn

from edge_client.inference.export.refusal import ExportRefused
from edge_client.models.fixed_state import distinct, sent_tensors
from edge_client.models.graphs import filling
from edge_client.models.graphs.checks import GraphRefused, first_line

_NUMBERS = frozenset({torch.float16, torch.float32, torch.float64})


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module's state that are inputs of its graph."""
    sent = distinct(sent_tensors(module))
    return {name: tensor.detach() for name, tensor in sent.items() if tensor.dtype in _NUMBERS}


def fill(graph: bytes, module: nn.Module, input_shape: tuple[int, ...]) -> Any:
    """The model of `graph` with the weights of `module`; raises `ExportRefused` for an invalid graph."""
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in weights_of(module).items()}
    try:
        filling.check_inference_graph(graph, input_shape)
        onnx.checker.check_model(graph)
        return filling.fill(graph, weights, input_shape)
    except GraphRefused as error:
        raise ExportRefused(str(error)) from error
    except onnx.checker.ValidationError as error:
        raise ExportRefused(f"the graph is not valid ONNX: {first_line(error)}") from error
