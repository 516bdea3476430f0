"""ATTENDING's attention per channel."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective
from schemas.tensors.blobs import Groups


class Attentive(GraphObjective):
    """Sends the last epoch's mean attention per channel (ATTENDING, eq. 6), which the graph observes."""

    def __init__(self, *, layers: tuple[str, ...], lowest: bool = False) -> None:
        self._layers, self._lowest = layers, lowest
        self._totals: dict[str, Array] = {}
        self._examples = 0

    def start_epoch(self) -> None:
        self._totals, self._examples = {}, 0

    def observe(self, observed: Mapping[str, Array], examples: int) -> None:
        self._examples += examples
        for layer in self._layers:
            batch = observed[names.ATTENTION + layer]
            self._totals[layer] = self._totals[layer] + batch if layer in self._totals else batch.copy()

    def finish(self) -> Groups:
        if not self._totals:
            return {}
        scores = {name: (total / self._examples).astype(np.float32) for name, total in self._totals.items()}
        return {"attention": {name: 1 - array for name, array in scores.items()} if self._lowest else scores}

    def state(self) -> Mapping[str, Any]:
        return {"totals": self._totals, "examples": self._examples}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._totals = {name: np.array(total) for name, total in state["totals"].items()}
        self._examples = state["examples"]
