"""Training within what memory there is: whole batches, or batches in parts whose gradients are added up.

Before a training begins, the cost model says what it will take (`cost.py`), and the board what there is
(`board/memory.py`). A batch that is too large is cut into as few parts as will do; if not even single
examples fit, the task is refused with `no-memory`, and the server gives the device a smaller sub-model next
time. The mean over a batch is the weighted mean over its parts, so the step is that of the whole batch, up to
rounding.

That does not hold for batch normalisation, which normalises by the statistics of what it is fed: a network
that has any would be trained on other numbers, and its running statistics would be those of fewer examples.
Nor does it for an objective that decides once per batch. Such batches are not cut: the task is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from edge_client.system.hardware.memory import Memory
from edge_client.training.cost_model import NetworkCost, network_cost
from schemas.errors import PeerError
from schemas.strategy import Component, TrainingPlan
from schemas.values import Reason

MARGIN = 1.2
"""So much more than is predicted must be free: the prediction may be a fifth off."""
PER_BATCH = frozenset({"mix"})
"""Objectives that decide once per batch."""

_known: WeakKeyDictionary[nn.Module, NetworkCost] = WeakKeyDictionary()


def micro_batch(
    module: nn.Module, input_shape: tuple[int, ...], plan: TrainingPlan, *, examples: int, memory: Memory
) -> int | None:
    """How many examples of a batch to take at once so that it fits; None: all of them.

    Raises `PeerError` with `no-memory` where no number would do, saying what is needed and what there is.
    """
    if memory.free is None or plan.local_epochs == 0 or examples == 0:
        return None
    cost = _cost(module, input_shape)
    whole = min(plan.batch_size, examples)
    for size in _sizes(whole, can_be_cut=_can_be_cut(module, plan.objectives)):
        if MARGIN * _to_come(cost, plan, examples, size) <= memory.free:
            return None if size == whole else size
    least = _to_come(cost, plan, examples, size)
    raise PeerError(
        f"training needs {MARGIN * least / 1e6:.0f} MB more, {memory.free / 1e6:.0f} MB are free"
        f" ({'batches of ' + str(size) if size > 1 else 'one example at a time'})",
        reason=Reason.NO_MEMORY,
    )


def _sizes(whole: int, *, can_be_cut: bool) -> Iterable[int]:
    """The batch in 1, 2, 3, ... nearly equal parts, each size once."""
    if not can_be_cut:
        return (whole,)
    return dict.fromkeys(-(-whole // parts) for parts in range(1, whole + 1))


def _to_come(cost: NetworkCost, plan: TrainingPlan, examples: int, batch: int) -> int:
    """Bytes that training takes on top of the network and the examples."""
    return cost.training(plan, examples=examples, batch=batch, pixel_bytes=0).total - cost.parameters


def _can_be_cut(module: nn.Module, objectives: Iterable[Component]) -> bool:
    normalises = any(isinstance(part, _BatchNorm) for part in module.modules())
    return not normalises and all(piece.name not in PER_BATCH for piece in objectives)


def _cost(module: nn.Module, input_shape: tuple[int, ...]) -> NetworkCost:
    """Computed once for a network that is filled repeatedly."""
    if module not in _known:
        _known[module] = network_cost(module, input_shape)
    return _known[module]
