"""A traced step as a program that torch's ONNX exporter translates without tracing it again.

The exporter traces a module three more times: twice to capture its operators and once to decompose them. That
is most of the time of a drawing, and changes next to nothing of a step, which was traced from operators
without data and decomposed already.
"""

from typing import Any

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram, ModuleCallEntry
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)

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
        if not _overwrites(node):
            continue
        overwritten = node.args[0]
        if node.target is not ATEN.copy_.default or overwritten.target is not ATEN.clone.default:
            raise NotReady(f"{node.target} changes an array in place")
        others = [user for user in overwritten.users if user is not node]
        if any(places[user] > places[node] or _is_view(user) for user in others):
            raise NotReady(f"{overwritten} may be read after {node} has changed it")
        node.target = ATEN.copy.default


def _overwrites(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _is_view(node: fx.Node) -> bool:
    """Whether the outputs may lie in the memory of the inputs."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(output.alias_info is not None for output in schema.returns)
