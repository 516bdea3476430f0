"""A traced step as an ONNX model whose batch axis is free."""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnxscript import optimizer
from torch import Tensor, fx, nn
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

from edge_client.models import modes
from edge_client.models.graphs import checks, exporter
from edge_client.pruning import attention
from edge_client.system.libraries import release
from edge_client.training.objectives import heterofl
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing import normalisation, pooling, transposes
from schemas.errors import EdgeError

# What a drawn graph depends on besides the network: the code that draws, and its libraries.

LIBRARIES = ("torch", "onnx", "onnxscript")


@cache
def drawing_version() -> str:
    """A digest that changes when the same network may be drawn differently."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    files += [Path(str(module.__file__)) for module in (names, attention, modes, heterofl)]
    digest = hashlib.sha256(repr([release(name) for name in LIBRARIES]).encode())
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


# Why a step cannot be drawn.


class DrawingRefused(EdgeError):
    """The step cannot be drawn, or its graph computes something else than torch."""


log = logging.getLogger(__name__)

OPSET = 18
FOLDED = 512
"""Most numbers of a constant that is computed once, fewer than the examples of a traced step: a run computes
larger ones."""
TRANSLATIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.edge_federation.max_pool.default: pooling.onnx_max_pool,
    torch.ops.edge_federation.examples.default: normalisation.onnx_examples,
}


class TracedStep(nn.Module):
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
    with exporter.quiet():
        try:
            program = _translate_module(ready_program(graph, constants), (), **options)
        except Exception as error:
            # torch's programs have another form, or an operator of the network has no translation.
            log.debug("the traced step is traced again by the exporter: %s", checks.first_line(error))
            program = _translate_module(
                TracedStep(graph, constants).eval(), tuple(example.values()), **options
            )
        if program is None:
            raise DrawingRefused("torch exported nothing")
        _free(program.model, examples)
        _tidy(program.model)
    exported: onnx.ModelProto = ir.to_proto(program.model)
    return exported


def _translate_module(module: Any, given: tuple[Tensor, ...], **options: Any) -> Any:
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

    def folds(node: ir.Node) -> bool | None:
        # The float32 numbers of waves would not be exact in double precision.
        return False if node.op_type in ("Cos", "Sin") else None

    common.InlinePass()(model)
    transposes.free_axes(model.graph, examples, names.BATCH)
    optimizer.fold_constants(model, output_size_limit=FOLDED, should_fold=folds)
    common.RemoveUnusedNodesPass()(model)
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    common.DeduplicateInitializersPass()(model)
    transposes.free_initializers(model.graph, examples, names.INPUTS)


def _tidy(model: ir.Model) -> None:
    """Remove what makes nothing new, and give unique names."""
    transposes.cancel_transposes(model.graph)
    common.IdentityEliminationPass()(model)
    common.RemoveUnusedNodesPass()(model)
    common.CommonSubexpressionEliminationPass()(model)
    common.OutputFixPass()(model)
    common.NameFixPass()(model)


# A traced step as a program that torch's ONNX exporter translates without tracing it again.
#
# The exporter traces a module three more times: twice to capture its operators and once to decompose them.
# That is most of the time of a drawing, and changes next to nothing of a step, which was traced from
# operators without data and decomposed already.

ATEN = torch.ops.aten


class NotReady(Exception):
    """The graph has operators that the exporter must replace first."""


class _Ready(ExportedProgram):
    """A program whose operators need no decomposition."""

    def run_decompositions(self, *_: Any, **__: Any) -> ExportedProgram:
        return self


def ready_program(graph: fx.GraphModule, constants: dict[str, Tensor]) -> ExportedProgram:
    """A copy of the graph, whose last inputs are `constants` by name. Raises `NotReady`."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    copied.eliminate_dead_code()
    _keep_values(copied)
    inputs = [node.name for node in copied.nodes if node.op == "placeholder"]
    (outputs,) = (node.args[0] for node in copied.nodes if node.op == "output")
    signature = ExportGraphSignature(
        input_specs=_inputs(inputs, [*constants]),
        output_specs=[
            OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(node.name), target=None) for node in outputs
        ],
    )
    return _Ready(
        fx.GraphModule({}, copied),
        copied,
        signature,
        dict(constants),
        {},
        [ModuleCallEntry("")],
        verifiers=None,
    )


def _inputs(names: list[str], constants: list[str]) -> list[InputSpec]:
    given = len(names) - len(constants)
    return [InputSpec(InputKind.USER_INPUT, TensorArgument(name), target=None) for name in names[:given]] + [
        InputSpec(InputKind.BUFFER, TensorArgument(name), target=constant, persistent=True)
        for name, constant in zip(names[given:], constants, strict=True)
    ]


def _keep_values(graph: fx.Graph) -> None:
    """Give a name of its own to each array that an operator overwrites, as running statistics are."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    for node in places:
        schema = getattr(node.target, "_schema", None)
        if schema is None or not schema.is_mutable:
            continue
        overwritten = node.args[0]
        if node.target is not ATEN.copy_.default or overwritten.target is not ATEN.clone.default:
            raise NotReady(f"{node.target} changes an array in place")
        others = [user for user in overwritten.users if user is not node]
        if any(places[user] > places[node] or _is_view(user) for user in others):
            raise NotReady(f"{overwritten} may be read after {node} has changed it")
        node.target = ATEN.copy.default


def _is_view(node: fx.Node) -> bool:
    """Whether the outputs may lie in the memory of the inputs."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(output.alias_info is not None for output in schema.returns)
