"""Runs a step graph in onnxruntime on arrays that stay in place between steps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.models.graphs.filling import open_on_processor
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.arena import session_options

Array = NDArray[Any]
TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


class StepSession:
    """A step graph with its arrays bound: `run` reads `given` and writes `gradients` and the other outputs.

    `data` is a checked graph; `given` are contiguous arrays of its inputs but the examples, by name, which
    the caller may change in place between runs. Raises onnxruntime's errors, which derive from `Exception`.
    """

    def __init__(self, data: bytes, given: Mapping[str, Array], *, threads: int = 0) -> None:
        self._session = open_on_processor(data, session_options(threads))
        self._binding = self._session.io_binding()
        self._names = {value.name for value in self._session.get_inputs()}
        self._given = given
        for name in sorted(self._names - {names.INPUTS, names.LABELS}):
            if not name.startswith(names.DROPOUT):
                self._bind_input(name, given[name])
        self._outputs = {value.name: self._bound_output(value) for value in self._session.get_outputs()}
        self.gradients = self._outputs_of(names.GRADIENT)
        self.buffers = self._outputs_of(names.NEXT)
        self.observed = self._outputs_of(names.OBSERVED)

    def run(self, batch: Mapping[str, Array]) -> float:
        """Run on a batch of `inputs`, `labels` and masks, contiguous arrays; returns its mean loss, or 0."""
        for name, array in batch.items():
            if name in self._names:
                self._bind_input(name, array)
        self._session.run_with_iobinding(self._binding)
        return float(self._outputs[names.LOSS]) if names.LOSS in self._outputs else 0.0

    def _outputs_of(self, prefix: str) -> dict[str, Array]:
        return {n.removeprefix(prefix): array for n, array in self._outputs.items() if n.startswith(prefix)}

    def _bind_input(self, name: str, array: Array) -> None:
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def _bound_output(self, value: Any) -> Array:
        array = np.zeros(value.shape, TYPES[value.type])
        self._binding.bind_output(value.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return array
