"""A traced step as an ONNX model whose batch axis is free."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnxscript import optimizer
from torch import Tensor, fx, nn

from edge_client.models.graphs.checks import first_line
from edge_client.models.graphs.exporter import quiet
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing import normalisation, pooling
from edge_client.training.step_graphs.drawing.free_batch import free_axes, free_initializers
from edge_client.training.step_graphs.drawing.program import ready_program
from edge_client.training.step_graphs.drawing.refusal import DrawingRefused
from edge_client.training.step_graphs.drawing.transposes import cancel_transposes

log = logging.getLogger(__name__)

OPSET = 18
BATCH = "batch"
FOLDED = 512
"""Most numbers of a constant that is computed once, fewer than the examples of a traced step: a run computes
larger ones."""
TRANSLATIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    **pooling.TRANSLATIONS,
    **normalisation.TRANSLATIONS,
}


class _Traced(nn.Module):
    """A traced graph as a module, which the exporter asks for, with the graph's constants as buffers."""

    def __init__(self, graph: fx.GraphModule, constants: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.graph = graph
        for name, constant in constants.items():
            self.register_buffer(name, constant)

    def forward(self, *tensors: Tensor) -> Any:
        return self.graph(*tensors, *self.buffers(recurse=False))


def _taken_out(graph: fx.GraphModule) -> dict[str, Tensor]:
    """The tensors that the graph refers to, which become its last inputs: the exporter loses references."""
    nodes = [node for node in graph.graph.nodes if node.op == "get_attr"]
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    found: dict[str, Tensor] = {}
    for number, node in enumerate(nodes):
        name = f"constant{number}"
        found[name] = getattr(graph, str(node.target)).detach()
        with graph.graph.inserting_after(last):
            last = graph.graph.placeholder(name)
        last.meta = dict(node.meta)
        node.replace_all_uses_with(last)
        graph.graph.erase_node(node)
    for target in {str(node.target) for node in nodes}:
        delattr(graph, target)
    graph.recompile()
    return found


def export(
    graph: fx.GraphModule, example: Mapping[str, Tensor], outputs: Sequence[str], examples: int
) -> onnx.ModelProto:
    """The graph that was traced with that many `examples`, as a model for any number of them."""
    constants = _taken_out(graph)
    options = {"input_names": [*example], "output_names": [*outputs]}
    with quiet():
        try:
            program = _translated(ready_program(graph, constants), (), **options)
        except Exception as error:
            # torch's programs have another form, or an operator of the network has no translation.
            log.debug("the traced step is traced again by the exporter: %s", first_line(error))
            program = _translated(_Traced(graph, constants).eval(), tuple(example.values()), **options)
        if program is None:
            raise DrawingRefused("torch exported nothing")
        _free(program.model, examples)
        _tidy(program.model)
    exported: onnx.ModelProto = ir.to_proto(program.model)
    return exported


def _translated(module: Any, given: tuple[Tensor, ...], **options: Any) -> Any:
    return torch.onnx.export(
        module,
        given,
        dynamo=True,
        opset_version=OPSET,
        custom_translation_table=dict(TRANSLATIONS),
        optimize=False,
        verbose=False,
        **options,
    )


def _free(model: ir.Model, examples: int) -> None:
    """Free the batch axis, after all that is constant is computed but arrays with numbers per example."""
    common.InlinePass()(model)
    free_axes(model.graph, examples, BATCH)
    optimizer.fold_constants(model, output_size_limit=FOLDED, should_fold=_folds)
    common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.DeduplicateInitializersPass()(model)
    free_initializers(model.graph, examples, names.INPUTS)


def _folds(node: ir.Node) -> bool | None:
    """Waves stay as they are: their float32 numbers would not be exact in double precision."""
    return False if node.op_type in ("Cos", "Sin") else None


def _tidy(model: ir.Model) -> None:
    """Remove what makes nothing new, and give unique names."""
    cancel_transposes(model.graph)
    common.IdentityEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.OutputFixPass()(model)
    common.NameFixPass()(model)
