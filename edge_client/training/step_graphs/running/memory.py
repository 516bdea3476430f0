"""Estimates the memory of training with step graphs, and splits batches that do not fit.

The server notes the working memory of a run in the graph (`drawing.working_memory`); a device adds what it
holds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from edge_client.compression.low_rank import factor_size
from edge_client.system.hardware.memory import memory
from edge_client.system.process_memory import trim_heap
from edge_client.training import epochs, trainer
from edge_client.training.step_graphs.running.graph_file import StepGraph
from schemas.strategy import Adapters, TrainingSettings

MARGIN = 1.2  # factor by which free memory must exceed the estimate
AT_ONCE, PER_WEIGHT_BYTE, PER_FIXED_BYTE, MIN_EXAMPLES = 3_000_000, 1.5, 1.5, 4
"""Working memory of a run in estimated bytes: at least `AT_ONCE`, and more for larger weights and where more
is the same for any number of examples. Larger batches are split into runs of at least `MIN_EXAMPLES`. Each
run costs some passes over the weights, and a transform of large kernels."""
PER_GRAPH_BYTE, PER_WORKING_BYTE = 55, 1.2
"""Bytes of a loaded graph for each byte of its file, and of the arena for each byte of working memory; fitted
to the shipped networks (`python -m tests.step_graphs.memory`)."""


class Step(Protocol):
    """What the memory of a step depends on: a drawn graph, or an estimate of one."""

    @property
    def fixed_bytes(self) -> float: ...
    @property
    def bytes_per_example(self) -> float: ...
    @property
    def smallest_batch(self) -> int: ...
    @property
    def size(self) -> int: ...


class LowRankBytes(NamedTuple):
    """The bytes of adapted weights, which are copied, and of their factors, which the optimizer has."""

    adapted: int = 0
    factors: int = 0


NO_LOW_RANK = LowRankBytes()


def step_bytes(
    step: Step,
    plan: TrainingSettings,
    weights: int,
    *,
    batch: int,
    split: bool,
    low: LowRankBytes = NO_LOW_RANK,
) -> int:
    """Bytes that training needs besides the network of `weights` bytes and the examples.

    Without epochs there are neither gradients nor an optimizer; the gradients of a `split` batch are summed.
    """
    optimizer = epochs.kept_bytes(plan, weights, adapted=low.adapted, factors=low.factors)
    copies = (1 + split) * weights + optimizer + low.adapted + 2 * low.factors
    session = PER_GRAPH_BYTE * step.size + PER_WORKING_BYTE * working_bytes(step, batch)
    return round(copies * (plan.local_epochs > 0) + session)


def working_bytes(step: Step, batch: int) -> float:
    """Bytes that a run of that many examples needs for its values."""
    return step.fixed_bytes + batch * step.bytes_per_example


def sizes(step: Step, whole: int, weights: int) -> list[int]:
    """Numbers of examples in which a batch of `whole` may run with `weights` bytes, the best first."""
    if step.smallest_batch > 1:
        return [whole]
    at_once = max(AT_ONCE, PER_WEIGHT_BYTE * weights, PER_FIXED_BYTE * step.fixed_bytes)
    most = max(MIN_EXAMPLES, int(at_once / max(1, step.bytes_per_example)))
    return [size for size in trainer.equal_parts(whole) if size <= most]


def micro_batch(
    graph: StepGraph,
    plan: TrainingSettings,
    arrays: Mapping[str, NDArray[Any]],
    *,
    examples: int,
    board: Path,
    adapters: Adapters | None = None,
) -> int | None:
    """Number of examples per run, so that little memory is used and none is missing; None for whole batches.

    Raises `PeerError` with `no-memory` if nothing fits. Batches are not split where normalisation needs them.
    """
    whole = min(plan.batch_size, examples)
    if examples == 0:
        return None
    trim_heap()
    free = memory(board).free
    weights = sum(arrays[name].nbytes for name in graph.trained_parameters & arrays.keys())
    low = _low_rank_bytes(arrays, adapters)
    for size in sizes(graph, whole, weights):
        needed = MARGIN * step_bytes(graph, plan, weights, batch=size, split=size < whole, low=low)
        if free is None or needed <= free:
            return None if size == whole else size
    assert free is not None
    raise trainer.no_memory(needed, free, size)


def _low_rank_bytes(arrays: Mapping[str, NDArray[Any]], adapters: Adapters | None) -> LowRankBytes:
    adapted = [arrays[name] for name in adapters.arrays if name in arrays] if adapters is not None else []
    rank = adapters.rank if adapters is not None else 1
    factors = sum(array.itemsize * factor_size(array.shape, rank) for array in adapted)
    return LowRankBytes(sum(array.nbytes for array in adapted), factors)
