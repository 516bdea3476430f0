"""What local training costs in memory, from the network's shapes and the plan alone.

Counted are the numbers that training has to hold: parameters, gradients, the optimizer's state, what the
forward pass keeps for the backward pass (Chen et al. 2016, Training Deep Nets with Sublinear Memory Cost,
section 3), and the data. Not counted: interpreter and libraries.

What is counted is what is held; a process needs more. `FRAGMENTS`, `WORKING` and `KERNELS` were fitted to the
growth of processes that trained the shipped networks at their tiers, on one thread, with oneDNN and glibc set
up as a device does it (`allocator.py`): with plain SGD, momentum and Adam in batches of 32. All of those
that were measured are within a fifth (`make test-memory`; tests/training_memory/README.md has the table, and
what is not in it). The same training grows by a fifth more or less as freed memory happens to lie. On a GPU,
and for recorded steps, nothing was measured.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional

from edge_client.pruning.surgery import count_macs
from schemas.strategy import TrainingPlan, TrainingSettings
from schemas.values import TRAINING_PASSES

COPIES: dict[str, int] = {"sgd": 0, "adam": 2}
"""How many numbers an optimizer keeps of each trained one; SGD with momentum keeps one."""
LABEL_BYTES = 8
TRAFFIC = 25
"""So many bytes could be copied in the time that a byte of a step's working memory costs, beside what is
computed: pages are new each time, kernels begin and end. Fitted to the five networks, which it tells apart
up to a factor of three."""
FRAGMENTS = 1.35
"""What the allocator holds for each byte that is kept: blocks come and go in many sizes. Fitted."""
WORKING = 2.5
"""So often the largest block is there beside: the gradients of what goes into and comes out of an operation,
as far as they are there at once. Fitted."""
KERNELS = 3_500_000
"""What convolutions need whatever the batch: code that is made for each shape, and room to work. Fitted."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class TrainingCost:
    """Bytes of one client's training, by what they are for.

    `parameters` are the network's tensors, buffers too; `activations` are what a step of the plan's batch
    size takes when that is most, the parameters' gradients apart; `data` are the examples as they are kept
    and as they are fed to the network.
    """

    parameters: int
    gradients: int
    optimizer: int
    activations: int
    data: int

    @property
    def total(self) -> int:
        """All of it: at the end of a backward pass nearly all is there at once."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.data


@dataclass(frozen=True)
class NetworkCost:
    """What a network needs, whatever it is trained on: told once from its shapes.

    Bytes: `parameters` with buffers, `trained` of those that are trained, `fixed` and `per_example` of what a
    step works with. `macs` are the multiply-accumulates of one example's forward pass.
    """

    input_shape: tuple[int, ...]
    parameters: int
    trained: int
    fixed: int
    per_example: float
    macs: int

    def training(
        self, plan: TrainingSettings, *, examples: int, batch: int | None = None, pixel_bytes: int = 1
    ) -> TrainingCost:
        """The cost of a plan on so many examples, in steps of `batch` (the plan's unless stated).

        `pixel_bytes` is what a pixel takes where the examples are kept, before it becomes a float32.
        """
        copies = 1 if plan.optimizer == "sgd" and plan.momentum else COPIES[plan.optimizer]
        pixels = examples * math.prod(self.input_shape)
        size = max(1, min(batch or plan.batch_size, examples))
        return TrainingCost(
            parameters=self.parameters,
            gradients=self.trained,
            optimizer=copies * self.trained,
            activations=max(0, self.fixed + round(self.per_example * size)),
            data=pixels * (4 + pixel_bytes) + examples * LABEL_BYTES,
        )

    def training_macs(self, *, examples: int, epochs: int) -> int:
        """Of a whole training: a step takes about three forward passes."""
        return TRAINING_PASSES * self.macs * examples * epochs

    def training_bytes(self, *, examples: int, epochs: int) -> float:
        """What a whole training moves, in bytes that a processor copies."""
        return TRAFFIC * self.per_example * examples * epochs


def network_cost(module: nn.Module, input_shape: tuple[int, ...]) -> NetworkCost:
    """What `module` needs for inputs of that shape; nothing is changed.

    All that a step works with grows with the batch or not at all, so two small batches tell any: what their
    sizes differ by is what two more examples need.
    """
    few, more = (_kept(module, input_shape, size) for size in (2, 4))
    trained = [_bytes(one) for one in module.parameters() if one.requires_grad]
    # The gradient of the largest is there twice: as it is computed, and as it is kept.
    beside = max(trained, default=0) + KERNELS * any(
        isinstance(one, CONVOLUTIONS) for one in module.modules()
    )
    return NetworkCost(
        input_shape=input_shape,
        parameters=sum(_bytes(one) for one in (*module.parameters(), *module.buffers())),
        trained=sum(trained),
        fixed=2 * few - more + beside,
        per_example=(more - few) / 2,
        macs=count_macs(module, input_shape),
    )


def training_cost(
    module: nn.Module,
    input_shape: tuple[int, ...],
    plan: TrainingPlan,
    *,
    examples: int,
    pixel_bytes: int = 1,
) -> TrainingCost:
    """The cost of training `module` on so many examples of `input_shape`; nothing is changed."""
    return network_cost(module, input_shape).training(plan, examples=examples, pixel_bytes=pixel_bytes)


def _kept(module: nn.Module, input_shape: tuple[int, ...], batch: int) -> int:
    """The same by one forward pass of zeros in training mode; the module and its buffers do not change."""
    traced = copy.deepcopy(module, {id(one): one for one in module.parameters()}).train()
    own = {tensor.untyped_storage().data_ptr() for tensor in (*traced.parameters(), *traced.buffers())}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        # The same numbers are kept once, however many operations need them.
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    like = next(module.parameters(), torch.zeros(()))
    inputs = torch.zeros(batch, *input_shape, dtype=like.dtype, device=like.device)
    labels = torch.zeros(batch, dtype=torch.int64, device=like.device)
    with torch.random.fork_rng(devices=[]), saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = functional.cross_entropy(traced(inputs), labels)
    sizes = [one.untyped_storage().nbytes() for storage, one in kept.items() if storage not in own]
    return round(FRAGMENTS * sum(sizes) + WORKING * max(sizes, default=0)) + _bytes(loss)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
