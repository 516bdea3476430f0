"""Estimates the memory of local training from the network's shapes and the plan.

It counts parameters, gradients, the optimizer's state, what the forward pass keeps for the backward pass
(Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost, section 3), and the data, but not the
interpreter and libraries.

A process needs more than it holds. `FRAGMENTS`, `WORKING` and `KERNELS` were fitted to the growth of
processes that trained the shipped networks at their tiers, on one thread, with oneDNN and glibc configured as
on a device (`system/process_memory.py`), with SGD, momentum and Adam in batches of 32. All measurements are
within a fifth of the estimate (`make test-memory`, tests/training_memory/README.md). Training on a GPU and
recorded steps were not measured.
"""

import copy
import math
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from edge_client.compression.low_rank import factor_size
from edge_client.models.modes import evaluating, training_only
from edge_client.pruning.surgery import count_macs
from edge_client.training.epochs import kept_bytes as kept_bytes_of
from schemas.strategy import Adapters, TrainingSettings
from schemas.values import TRAINING_PASSES

LABEL_BYTES = 8
TRAFFIC = 25
"""Bytes that could be copied in the time that each byte of a step's working memory costs on top of the
computation (new pages, kernel starts). Fitted to the five networks, with errors up to a factor of three."""
FRAGMENTS = 1.35  # bytes that the allocator holds per kept byte, because of fragmentation; fitted
WORKING = 2.5  # copies of the largest block for the gradients of an operation's inputs and outputs; fitted
KERNELS = 3_500_000  # bytes that convolutions need for any batch: generated code and working memory; fitted
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class TrainingCost:
    """Bytes of one client's training by purpose.

    `parameters` includes buffers; `activations` is the peak of a step apart from the parameters' gradients;
    `data` counts the examples as stored and as network inputs.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    data: int

    @property
    def total(self) -> int:
        """The sum, which nearly exists at once at the end of a backward pass."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.data


@dataclass(frozen=True)
class NetworkCost:
    """The cost of a network for any data, from its shapes.

    In bytes: `parameters` with buffers, `trained` parameters, and a step's working memory `fixed` and
    `per_example`; those of `adapted` weights, which are copied, and of their `factors`, which the optimizer
    has in their place. `macs` are the multiply-accumulates of one example's forward pass.
    """

    input_shape: tuple[int, ...]
    parameters: int
    trained: int
    fixed: int
    per_example: float
    macs: int
    adapted: int = 0
    factors: int = 0

    def training(
        self, plan: TrainingSettings, *, examples: int, batch: int | None = None, pixel_bytes: int = 1
    ) -> TrainingCost:
        """The cost of a plan with this many examples, in steps of `batch` (by default the plan's).

        `pixel_bytes` is the size of a stored pixel, before it becomes a float32.
        """
        pixels = examples * math.prod(self.input_shape)
        size = max(1, min(batch or plan.batch_size, examples))
        return TrainingCost(
            parameters=self.parameters,
            gradients=self.trained + self.factors,
            # In plain steps a gradient of an adapted weight becomes those of its factors at once.
            optimizer=kept_bytes_of(plan, self.trained, adapted=self.adapted, factors=self.factors)
            + self.adapted * (plan.sam_radius > 0),
            activations=max(0, self.fixed + round(self.per_example * size)),
            data=pixels * (4 + pixel_bytes) + examples * LABEL_BYTES,
        )

    def training_macs(self, *, examples: int, epochs: int) -> int:
        """Multiply-accumulates of a whole training; a step takes about three forward passes."""
        return TRAINING_PASSES * self.macs * examples * epochs

    def training_bytes(self, *, examples: int, epochs: int) -> float:
        """Bytes that a whole training moves, in bytes of plain copies."""
        return TRAFFIC * self.per_example * examples * epochs


def network_cost(
    module: nn.Module,
    input_shape: tuple[int, ...],
    trained: Collection[str] | None = None,
    adapters: Adapters | None = None,
) -> NetworkCost:
    """The cost of training the arrays `trained` (None: all), or `adapters` of them, for inputs of that shape.

    Working memory is a linear function of the batch size, which two small batches determine.
    """
    with evaluating(module), training_only(module, trained):
        kept = [kept_bytes(module, input_shape, size) for size in (2, 4)]
        gradients = [_bytes(weight) for weight in module.parameters() if weight.requires_grad]
    names, rank = (adapters.arrays, adapters.rank) if adapters is not None else ((), 1)
    adapted = {name: weight for name, weight in module.named_parameters() if name in names}
    few, more = (round(FRAGMENTS * every + WORKING * largest) for every, largest in kept)
    # The largest gradient exists twice: as it is computed, and as it is kept.
    extra = max(gradients, default=0) + KERNELS * any(
        isinstance(part, CONVOLUTIONS) for part in module.modules()
    )
    return NetworkCost(
        input_shape=input_shape,
        parameters=sum(map(_bytes, (*module.parameters(), *module.buffers()))),
        trained=sum(gradients),
        fixed=2 * few - more + extra,
        per_example=(more - few) / 2,
        macs=count_macs(module, input_shape),
        adapted=sum(map(_bytes, adapted.values())),
        factors=sum(_FLOAT * factor_size(tuple(weight.shape), rank) for weight in adapted.values()),
    )


_FLOAT = 4


@dataclass(frozen=True, eq=False)
class _Kept:
    """What an operation keeps, for as long as its backward pass may be asked for."""

    array: Tensor


def kept_bytes(
    module: nn.Module,
    input_shape: tuple[int, ...],
    batch: int,
    *,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    indices: bool = True,
) -> tuple[int, int]:
    """Bytes that a forward pass keeps for the backward pass, and those of the largest array among them.

    It is a pass of zeros in training mode, on a copy, in a context that `within` makes. Without `indices`
    arrays of whole numbers do not count.
    """
    traced = copy.deepcopy(module, {id(weight): weight for weight in module.parameters()}).train()
    own = {tensor.untyped_storage().data_ptr() for tensor in (*traced.parameters(), *traced.buffers())}
    kept = WeakSet[_Kept]()

    def keep(array: Tensor) -> _Kept:
        # With its history an output would keep the operation that keeps it.
        held = _Kept(array.detach())
        kept.add(held)
        return held

    like = next(module.parameters(), torch.zeros(()))
    inputs = torch.zeros(batch, *input_shape, dtype=like.dtype, device=like.device)
    labels = torch.zeros(batch, dtype=torch.int64, device=like.device)
    with torch.random.fork_rng(devices=[]), saved_tensors_hooks(keep, lambda held: held.array):
        with within():
            outputs = traced(inputs)
        loss = functional.cross_entropy(outputs, labels)
    # While there is a loss, there is what its backward pass needs. Operations may keep the same array.
    arrays = {held.array.untyped_storage().data_ptr(): held.array for held in kept}
    del loss
    sizes = [
        array.untyped_storage().nbytes()
        for storage, array in arrays.items()
        if storage not in own and (indices or array.dtype != torch.int64)
    ]
    return sum(sizes), max(sizes, default=0)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
