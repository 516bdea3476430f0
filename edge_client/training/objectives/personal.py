"""Personal parameters (Hermes; Li et al. 2021, MobiCom)."""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import numpy as np

from edge_client.system.lazy_torch import nn
from edge_client.training.objectives.base import LocalObjective, StepPart, TrainingContext
from schemas.tensors.arrays import Arrays, Groups

Masks = Mapping[str, Any]  # boolean arrays by parameter


class Personal(LocalObjective):
    """Start from this device's own values outside the last round's intersection (Hermes).

    The group `overlap` is true where all devices of the last round hold a coordinate, which then has the
    received value. Elsewhere the device keeps the value that it trained last, or takes the received one if it
    never held the coordinate or there was no intersection yet. Running statistics are treated like weights.
    What is frozen has the same values in every round, here and there.
    Name it before objectives that read the weights at the start (`prox`).
    """

    receives = frozenset({"overlap"})
    starts_elsewhere = True
    reads_outputs_only: ClassVar[bool] = True

    def __init__(self) -> None:
        self._module: nn.Module | None = None

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        from edge_client.pruning.surgery import arrays_of, load_arrays

        self._module = module
        shared = context.received.get("overlap")
        if shared is not None:
            load_arrays(module, with_own_values(arrays_of(module), context.kept, shared))
        return ()

    def keep(self) -> Groups:
        from edge_client.pruning.surgery import arrays_of

        if self._module is None:
            return {}
        own = arrays_of(self._module)
        held: Masks = {name: np.ones(array.shape, bool) for name, array in own.items()}
        return {"personal": own, "personal-held": held}

    def step_part(self, outputs: int) -> StepPart:
        return StepPart()

    def close(self) -> None:
        self._module = None


def with_own_values(received: Arrays, kept: Groups, shared: Masks) -> Arrays:
    """The received values, replaced by the device's own where it held a coordinate that is not `shared`."""
    own, held = kept.get("personal", {}), kept.get("personal-held", {})
    masks: Masks = {name: np.logical_and(held[name], np.logical_not(shared[name])) for name in own}
    return {
        name: np.where(masks[name], own[name], array) if name in own else array
        for name, array in received.items()
    }
