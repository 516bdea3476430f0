"""The interface of objectives around a step graph: what they do before, between and after its runs.

Each objective is one class and one entry in the registry. Their formulas are those of
`edge_client.training.objectives`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import IndexSet
from edge_client.training.objectives.formulas import Objective
from schemas import errors, strategy, submodel
from schemas.tensors.arrays import Arrays, Groups

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Setting:
    """What an objective sees at the start of a training.

    `weights` are the network's arrays in training, changed in place; `trained` the names of its parameters.
    `received` are the task's groups, `kept` those of this device's last counted round. `steps` is the plan's
    number of optimizer steps, `labels` [N] are those of the local examples.
    """

    plan: strategy.TrainingPlan
    weights: Mapping[str, Array]
    trained: frozenset[str]
    received: Groups
    kept: Groups
    steps: int
    labels: NDArray[np.int64]
    classes: int
    spec: submodel.SubModelSpec = field(default_factory=submodel.SubModelSpec)
    channel_map: submodel.ChannelMap | None = None

    def array(self, group: Arrays, name: str) -> Array:
        """A group's float32 array for a weight, zeros if the group has none."""
        weight = self.weights[name]
        if name not in group:
            return np.zeros_like(weight)
        found = np.array(group[name], np.float32)
        if found.shape != weight.shape:
            raise errors.InvariantError(f"{name!r}: expected shape {weight.shape}, got {found.shape}")
        return found


@dataclass(frozen=True, eq=False)
class Width:
    """A smaller network within the device's own: the number of its graph, its arrays' coordinates, and its
    share of the device's channels.
    """

    number: int
    index_sets: Mapping[str, IndexSet]
    share: float


class GraphObjective(Objective, Protocol):
    """One objective's part around a graph. By default every method does nothing.

    `widths` are the smaller networks that it trains in some of the steps, known after `setup`.
    """

    widths: Sequence[Width] = ()

    def setup(self, setting: Setting) -> None:
        """Begin a training; may change the weights."""

    def inputs(self) -> Mapping[str, Array]:
        """Further inputs of the graph, the same in every step."""
        return {}

    def width(self) -> Width | None:
        """The network of the next step; None for the device's own."""
        return None

    def observe(self, observed: Mapping[str, Array], examples: int) -> None:
        """Take the graph's observations of a batch."""

    def correct(self, gradients: Mapping[str, Array]) -> None:
        """Change the gradients in place before the optimizer's step."""
