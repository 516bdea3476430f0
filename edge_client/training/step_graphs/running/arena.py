"""Sessions of step graphs on arrays that stay in place between steps, and the memory of all sessions.

All of onnxruntime's sessions share one arena, whose regions hold a run each.
The blocks of a step differ in size, and free blocks are joined within a region alone: the values of a step of
the whole `cnn-batch` in batches of 32, which take 42 MB at once, take 44 MB in one region, 79 MB in two, and
78 MB with a region for each block. What no block has touched of a region takes no memory.
"""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_client.models.graphs import checks, filling
from edge_client.models.graphs.filling import open_on_processor
from edge_client.system.hardware.memory import memory
from edge_client.training.step_graphs import names

log = logging.getLogger(__name__)

DOUBLING = 0  # onnxruntime's number for an arena of which each region is twice as large as the one before
MIN_BYTES, PER_WORKING_BYTE, MAX_BYTES = 4 * 1024**2, 1.6, 1024**3
"""Size of the regions: some for each byte of a run. onnxruntime writes a table of a thirty-second of it, and
takes no number of 32 bits or more."""
BLOCK_BYTES = 64 * 1024  # bytes that may stay unused in a block, and of the first region


def region_bytes(working: float) -> int:
    """The size of a region that holds a run of `working` bytes, in whole blocks."""
    wanted = min(max(MIN_BYTES, PER_WORKING_BYTE * working), MAX_BYTES)
    return math.ceil(wanted / BLOCK_BYTES) * BLOCK_BYTES


_is_made = False


def reserve(working: float) -> None:
    """Make the process's arena for runs that take this many bytes, unless it is made."""
    global _is_made
    if _is_made:
        return
    _is_made = True
    kind = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    settings = {
        "arena_extend_strategy": DOUBLING,
        "initial_chunk_size_bytes": BLOCK_BYTES,
        "initial_growth_chunk_size_bytes": region_bytes(working),
        "max_dead_bytes_per_chunk": BLOCK_BYTES,
        # A graph that asks for more than the board has gets an error; 0 is no limit.
        "max_mem": memory().usable or 0,
    }
    onnxruntime.create_and_register_allocator(kind, onnxruntime.OrtArenaCfg(settings))
    # The first region is never returned: a run that takes four bytes gets it.
    return_memory()


def session_options(threads: int) -> Any:
    """Options of a session in the arena with that many threads; 0 is onnxruntime's choice."""
    reserve(0)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    # A memory pattern keeps all values of a run at once, and the default order many gradients until the end.
    options.enable_mem_pattern = False
    # A block that is kept for a later value of the same size is not free in between.
    options.enable_mem_reuse = False
    # Further optimisations replace nodes by new ones, which run last and keep what they read.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.add_session_config_entry("session.use_env_allocators", "1")
    return options


def return_memory() -> None:
    """Return what no session uses to the C library."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = filling.open_on_processor(_identity(), session_options(1))
    session.run(None, {"x": np.zeros(1, np.float32)}, options)


@cache
def _identity() -> bytes:
    """A graph that copies its input [1]."""
    model = checks.ModelProto(ir_version=8)
    model.opset_import.add(version=18)
    model.graph.node.add(op_type="Identity", input=["x"], output=["y"])
    for value in (model.graph.input.add(name="x"), model.graph.output.add(name="y")):
        value.type.tensor_type.elem_type = 1
        value.type.tensor_type.shape.dim.add(dim_value=1)
    data: bytes = model.SerializeToString()
    return data


Array = NDArray[Any]
TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(bool)": np.bool_,
}


@dataclass(frozen=True, eq=False)
class StepPlace:
    """What runs a step graph: its name, how it opens one, and who is told once why it has failed.

    It runs steps of `batch` examples: many compile a graph for one shape. The processor runs all others.
    """

    name: str = "cpu"
    open: Callable[[bytes, Any], Any] = open_on_processor
    on_failure: Callable[[str], None] = lambda _: None
    batch: int | None = None


PROCESSOR = StepPlace()


class StepSession:
    """A step graph with its arrays bound: `run` reads `given` and writes `gradients` and the other outputs.

    `data` is a checked graph; `given` are contiguous arrays of its inputs but the examples, by name, which
    the caller may change in place between runs. Raises onnxruntime's errors, which derive from `Exception`,
    on the processor; another `place` that fails leaves that run and all others to it.
    """

    def __init__(
        self,
        data: bytes,
        given: Mapping[str, Array],
        *,
        threads: int = 0,
        place: StepPlace = PROCESSOR,
    ) -> None:
        self._data, self._threads, self.place = data, threads, place
        self._given, self._outputs = given, dict[str, Array]()
        self._bound = dict[StepPlace, _BoundSession]()
        try:
            self._session_in(place)
        except Exception as error:
            self._leave_to_processor(error)
            self._session_in(PROCESSOR)
        self.gradients = self._outputs_of(names.GRADIENT)
        self.buffers = self._outputs_of(names.NEXT)
        self.observed = self._outputs_of(names.OBSERVED)

    def run(self, batch: Mapping[str, Array]) -> float:
        """Run on a batch of `inputs`, `labels` and masks, contiguous arrays; returns its mean loss, or 0."""
        fits = self.place.batch in (None, len(batch[names.INPUTS]))
        session = self._session_in(self.place if fits else PROCESSOR)
        try:
            session.run(batch)
        except Exception as error:
            if not fits:
                raise
            self._leave_to_processor(error)
            self._session_in(PROCESSOR).run(batch)
        return float(self._outputs[names.LOSS]) if names.LOSS in self._outputs else 0.0

    def _outputs_of(self, prefix: str) -> dict[str, Array]:
        return {n.removeprefix(prefix): array for n, array in self._outputs.items() if n.startswith(prefix)}

    def _session_in(self, place: StepPlace) -> "_BoundSession":
        """The graph's session there, opened when it is first needed."""
        if place not in self._bound:
            options = session_options(self._threads)
            if place.batch is not None:
                options.add_free_dimension_override_by_name(names.BATCH, place.batch)
            self._bound[place] = _BoundSession(place.open(self._data, options), self._given, self._outputs)
        return self._bound[place]

    def _leave_to_processor(self, error: Exception) -> None:
        """Give the place up for its error; raises that of the processor."""
        if self.place is PROCESSOR:
            raise error
        reason = " ".join(str(error).split())[:300]
        log.warning("%s failed, the processor trains from now on: %s", self.place.name, reason)
        self.place.on_failure(reason)
        self._bound.pop(self.place, None)
        self.place = PROCESSOR


class _BoundSession:
    """A session that reads `inputs` and writes `outputs`, in which it puts what is not there yet."""

    def __init__(self, session: Any, inputs: Mapping[str, Array], outputs: dict[str, Array]) -> None:
        self._session, self._binding = session, session.io_binding()
        self._names = {value.name for value in session.get_inputs()}
        self._bind(inputs)
        for value in session.get_outputs():
            if value.name not in outputs:
                outputs[value.name] = np.zeros(value.shape, TYPES[value.type])
            array = outputs[value.name]
            self._binding.bind_output(value.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def run(self, batch: Mapping[str, Array]) -> None:
        self._bind(batch)
        self._session.run_with_iobinding(self._binding)

    def _bind(self, arrays: Mapping[str, Array]) -> None:
        for name in sorted(self._names & arrays.keys()):
            array = arrays[name]
            self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
