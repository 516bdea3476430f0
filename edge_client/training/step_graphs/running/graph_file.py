"""A step graph as a device reads it: checked, with its inputs, outputs and metadata."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edge_client.models.graphs.checks import GraphRefused, check_graph
from edge_client.training.step_graphs import names

MAX_BYTES = 16 * 1024 * 1024  # far above a step graph, which has no weights: 56 layers take a megabyte
MAX_NODES = 50_000
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class StepGraph:
    """A checked graph: `inputs` and `outputs` have shapes by name, whose first axis is 0 for a free batch."""

    data: bytes
    inputs: Mapping[str, tuple[int, ...]]
    outputs: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, str]

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def arrays(self) -> tuple[str, ...]:
        """Inputs that the steps of a training change: parameters and buffers, also of attention modules."""
        others = (names.INPUTS, names.LABELS, names.KNOWN)
        given = (names.DROPOUT, names.RECEIVED)
        return tuple(n for n in self.inputs if n not in others and not n.startswith(given))

    @property
    def trained_parameters(self) -> frozenset[str]:
        """The parameters that have a gradient."""
        return _names_with_prefix(self.outputs, names.GRADIENT)

    @property
    def smallest_batch(self) -> int:
        return int(self._number(names.SMALLEST_BATCH, 1))

    @property
    def fixed_bytes(self) -> float:
        """Estimated working memory of a run that does not depend on the batch."""
        return self._number(names.FIXED_BYTES, 0)

    @property
    def bytes_per_example(self) -> float:
        """Estimated working memory of a run for each example."""
        return self._number(names.BYTES_PER_EXAMPLE, 0)

    @cached_property
    def dropouts(self) -> Mapping[str, tuple[float, tuple[int, ...]]]:
        """The probability and the shape of each mask, without the batch axis."""
        try:
            given = json.loads(self.metadata.get(names.DROPOUTS, "{}"))
            found = {name: float(given[name]) for name in self.inputs if name.startswith(names.DROPOUT)}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise GraphRefused(f"its dropouts cannot be read: {error}") from error
        if not all(0 <= probability < 1 for probability in found.values()):
            raise GraphRefused("a dropout's probability is not at least 0 and below 1")
        return {name: (probability, self.inputs[name][1:]) for name, probability in found.items()}

    def fitting(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays that the graph takes; raises `GraphRefused` if one is missing or has another shape."""
        for name in self.arrays:
            if name not in arrays:
                raise GraphRefused(f"it needs {name!r}, which is not an array of this network")
            if arrays[name].shape != self.inputs[name]:
                raise GraphRefused(f"{name!r} has shape {arrays[name].shape}, not {self.inputs[name]}")
        for prefix in (names.GRADIENT, names.NEXT):
            for name in _names_with_prefix(self.outputs, prefix):
                if self.outputs[prefix + name] != self.inputs.get(name):
                    raise GraphRefused(f"{prefix + name!r} has another shape than {name!r}")
        return {name: arrays[name] for name in self.arrays}

    def _number(self, key: str, default: float) -> float:
        try:
            value = float(self.metadata.get(key, default))
        except ValueError as error:
            raise GraphRefused(f"its {key} is not a number") from error
        if not 0 <= value <= 1e15:
            raise GraphRefused(f"its {key} is {value}")
        return value


def read_step_graph(path: Path) -> StepGraph:
    """The step graph in a file; raises `GraphRefused` for a file that is none."""
    data = path.read_bytes()
    model = check_graph(data, max_bytes=MAX_BYTES, max_nodes=MAX_NODES)
    graph = StepGraph(
        data,
        {value.name: _shape(value) for value in model.graph.input},
        {value.name: _shape(value) for value in model.graph.output},
        {entry.key: entry.value for entry in model.metadata_props},
    )
    if names.INPUTS not in graph.inputs:
        raise GraphRefused(f"it has no input {names.INPUTS!r}")
    return graph


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an input or output; 0 for a free axis, which only the first may be."""
    shape = tuple(int(axis.dim_value) for axis in value.type.tensor_type.shape.dim)
    if min(shape[1:], default=1) < 1:
        raise GraphRefused(f"{value.name!r} has a free axis besides the batch")
    return shape


def _names_with_prefix(values: Mapping[str, object], prefix: str) -> frozenset[str]:
    return frozenset(name.removeprefix(prefix) for name in values if name.startswith(prefix))
