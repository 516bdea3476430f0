"""Splits batches into parts that fit into memory; the gradients of the parts are added up.

A batch whose estimated cost (`cost_model`) exceeds the free memory is split into as few parts as possible. If
single examples do not fit, the task is refused with `no-memory`, and the server assigns a smaller sub-model.
The mean over a batch is the weighted mean over its parts, so that the step is the same up to rounding.

Batches are not split for networks with batch normalisation, which depends on the statistics of a batch, or
for objectives that decide once per batch; such a task is refused.
"""

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from torch import nn

from edge_client.models.modes import normalises_batches
from edge_client.system.hardware.memory import Memory
from edge_client.training.cost_model import NetworkCost, network_cost
from schemas.errors import PeerError
from schemas.strategy import TrainingPlan
from schemas.values import Reason

MARGIN = 1.2
"""Factor by which free memory must exceed the estimate, which may be a fifth too low."""
PER_BATCH = frozenset({"mix"})
"""Objectives that decide once per batch."""

_known: WeakKeyDictionary[nn.Module, NetworkCost] = WeakKeyDictionary()


def micro_batch(
    module: nn.Module, input_shape: tuple[int, ...], plan: TrainingPlan, *, examples: int, memory: Memory
) -> int | None:
    """Number of examples per forward pass that fits into memory; None for whole batches.

    Raises `PeerError` with `no-memory`, the needed and the free bytes if nothing fits.
    """
    if memory.free is None or plan.local_epochs == 0 or examples == 0:
        return None
    if module not in _known:
        _known[module] = network_cost(module, input_shape)
    cost = _known[module]
    whole = min(plan.batch_size, examples)
    per_batch = any(objective.name in PER_BATCH for objective in plan.objectives)
    for size in _sizes(whole, can_be_split=not per_batch and not normalises_batches(module)):
        if MARGIN * _further_bytes(cost, plan, examples, size) <= memory.free:
            return None if size == whole else size
    least = _further_bytes(cost, plan, examples, size)
    raise PeerError(
        f"training needs {MARGIN * least / 1e6:.0f} MB more, {memory.free / 1e6:.0f} MB are free"
        f" ({'batches of ' + str(size) if size > 1 else 'one example at a time'})",
        reason=Reason.NO_MEMORY,
    )


def _sizes(whole: int, *, can_be_split: bool) -> Iterable[int]:
    """The batch in 1, 2, 3, ... nearly equal parts, each size once."""
    if not can_be_split:
        return (whole,)
    return dict.fromkeys(-(-whole // parts) for parts in range(1, whole + 1))


def _further_bytes(cost: NetworkCost, plan: TrainingPlan, examples: int, batch: int) -> int:
    """Bytes that training needs besides the network and the examples."""
    return cost.training(plan, examples=examples, batch=batch, pixel_bytes=0).total - cost.parameters
