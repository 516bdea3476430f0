"""Personal parameters (Hermes; Li et al. 2021, MobiCom)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from torch import nn

from edge_client.pruning.surgery import arrays_of, load_arrays
from edge_client.training.objectives.objective import LocalObjective, Surroundings
from schemas.tensors.blobs import Arrays, Groups

Masks = Mapping[str, Any]
"""Per parameter, which coordinates are meant: boolean arrays."""


class Personal(LocalObjective):
    """Begin from this device's own values wherever the last round's intersection did not reach (Hermes).

    The group `overlap` is true where all devices of the last round hold a coordinate: there the received
    model counts. Elsewhere the device goes on from what it trained last, however long ago; from the received
    model where it never held a coordinate, and everywhere before the first intersection. Running statistics
    are treated like weights. Name it before objectives that look at the weights at the start (`prox`).
    """

    receives = frozenset({"overlap"})

    def __init__(self) -> None:
        self._module: nn.Module | None = None

    def setup(self, module: nn.Module, around: Surroundings) -> Iterable[nn.Parameter]:
        self._module = module
        shared = around.received.get("overlap")
        if shared is not None:
            load_arrays(module, personalised(arrays_of(module), around.kept, shared))
        return ()

    def keep(self) -> Groups:
        if self._module is None:
            return {}
        own = arrays_of(self._module)
        held: Masks = {name: np.ones(array.shape, bool) for name, array in own.items()}
        return {"personal": own, "personal-held": held}

    def close(self) -> None:
        self._module = None


def personalised(received: Arrays, kept: Groups, shared: Masks) -> Arrays:
    """The device's own values where it held a coordinate that is not `shared`; the sub-model's shapes."""
    own, held = kept.get("personal", {}), kept.get("personal-held", {})
    masks: Masks = {name: np.logical_and(held[name], np.logical_not(shared[name])) for name in own}
    return {
        name: np.where(masks[name], own[name], array) if name in own else array
        for name, array in received.items()
    }
