"""The memory of onnxruntime's sessions: one arena for all, which grows by what is asked for.

onnxruntime's own arena doubles with each growth, and the C library's heap is fragmented by the blocks of a
step, which differ in size: a training of the whole `cnn-batch` in batches of 32 took 160 MB in the heap and
90 MB in this arena, in as much time.
"""

from functools import cache
from typing import Any

import numpy as np
import onnxruntime

from edge_client.models.graphs.onnx_messages import ModelProto
from edge_client.system.hardware.memory import memory

SAME_AS_REQUESTED = 1
"""onnxruntime's number for an arena that does not grow by more than a block."""
BLOCK_BYTES = 64 * 1024
"""The arena's first block, and the bytes of a block that may stay unused rather than be split off."""


def session_options(threads: int) -> Any:
    """Options of a session in the arena with that many threads; 0 is onnxruntime's choice."""
    _register()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    # A memory pattern keeps all values of a run at once, and the default order many gradients until the end.
    options.enable_mem_pattern = False
    # Further optimisations replace nodes by new ones, which run last and keep what they read.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    options.add_session_config_entry("session.use_env_allocators", "1")
    return options


def return_memory() -> None:
    """Return what no session uses to the C library."""
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = onnxruntime.InferenceSession(
        _identity(), session_options(1), providers=["CPUExecutionProvider"]
    )
    session.run(None, {"x": np.zeros(1, np.float32)}, options)


@cache
def _register() -> None:
    kind = onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    )
    settings = {
        "arena_extend_strategy": SAME_AS_REQUESTED,
        "initial_chunk_size_bytes": BLOCK_BYTES,
        "max_dead_bytes_per_chunk": BLOCK_BYTES,
        # A graph that asks for more than the board has gets an error; 0 is no limit.
        "max_mem": memory().usable or 0,
    }
    onnxruntime.create_and_register_allocator(kind, onnxruntime.OrtArenaCfg(settings))


@cache
def _identity() -> bytes:
    """A graph that copies its input [1]."""
    model = ModelProto(ir_version=8)
    model.opset_import.add(version=18)
    model.graph.node.add(op_type="Identity", input=["x"], output=["y"])
    for value in (model.graph.input.add(name="x"), model.graph.output.add(name="y")):
        value.type.tensor_type.elem_type = 1
        value.type.tensor_type.shape.dim.add(dim_value=1)
    data: bytes = model.SerializeToString()
    return data
