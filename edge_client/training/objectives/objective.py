"""What a client optimises in addition to its plain loss: the shape of one objective, and what it is given.

Plain SGD is no objective at all. FedProx wraps the loss, SCAFFOLD corrects gradients, ATTENDING observes:
each is one class in a file of its own and one entry in the registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from schemas.strategy import TrainingPlan
from schemas.tensors.blobs import Groups


@dataclass(frozen=True, eq=False)
class Batch:
    """One forward pass: the module in training, inputs [B, C, H, W], labels [B], outputs [B, classes]."""

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    outputs: Tensor


@dataclass(frozen=True, eq=False)
class Surroundings:
    """What an objective may know when training begins.

    `received` are the groups of the task; `kept` what objectives kept after this device's last counted round;
    arrays that bear a parameter's name have the sub-model's shapes. `steps` is how many optimizer steps the
    plan takes; `inputs` [N, C, H, W] and `labels` [N] are the local examples on the module's device.
    """

    plan: TrainingPlan
    received: Groups = field(default_factory=dict)
    kept: Groups = field(default_factory=dict)
    steps: int = 0
    inputs: Tensor = field(default_factory=lambda: torch.zeros(0))
    labels: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))


class LocalObjective(Protocol):
    """One algorithm's part in local training. Every method does nothing by default.

    Called in this order: `setup`; `start_epoch` per epoch; `prepare`, `loss` and `correct` per batch; at the
    end `finish` and `keep`. `close` always comes last, after errors too. Between two epochs `state` may be
    asked for; after a `setup` in another process, `resume` puts it back.

    `receives` and `sends` name the groups that pass between server and device for it; `optimizers` the local
    optimizers that it is made for (none named: any).
    """

    receives: ClassVar[frozenset[str]] = frozenset()
    sends: ClassVar[frozenset[str]] = frozenset()
    optimizers: ClassVar[frozenset[str]] = frozenset()

    def setup(self, module: nn.Module, around: Surroundings) -> Iterable[nn.Parameter]:
        """Take hold of the module, which has the received weights; returns further parameters to train."""
        return ()

    def start_epoch(self) -> None:
        """A new pass over the data begins."""

    def prepare(self, inputs: Tensor) -> Tensor:
        """Change what the network is fed; called right before each forward pass."""
        return inputs

    def loss(self, batch: Batch, base: Tensor) -> Tensor:
        """Wrap the scalar loss so far; called once right after each forward pass."""
        return base

    def correct(self) -> None:
        """Change the gradients of the module before the optimizer's step."""

    def finish(self) -> Groups:
        """The groups to send with the model."""
        return {}

    def keep(self) -> Groups:
        """What the device keeps for its next round, once the server has counted this one."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """What the epochs so far have changed in it: plain values and tensors.

        What `setup` makes of the same task again is none of it, nor are the module's own parameters.
        """
        return {}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""

    def close(self) -> None:
        """Let go of the module: it must be as plain as it was before `setup`."""
