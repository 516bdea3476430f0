"""SCAFFOLD's control variates."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edge_client.training.objectives.formulas import gradient_mass
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective, Setting
from schemas.tensors.blobs import Groups


class Scaffold(GraphObjective):
    """Correct gradients by c - c_i (SCAFFOLD, Karimireddy et al. 2020, Algorithm 1, option II)."""

    def __init__(self) -> None:
        self._steps = 0

    def setup(self, setting: Setting) -> None:
        received, kept = setting.received.get("control", {}), setting.kept.get("own-control", {})
        self._weights = setting.weights
        self._start = {name: setting.weights[name].copy() for name in sorted(setting.trained)}
        self._server = {name: setting.array(received, name) for name in self._start}
        self._own = {name: setting.array(kept, name) for name in self._start}
        self._correction = {name: self._server[name] - self._own[name] for name in self._start}
        self._rate, self._momentum = setting.plan.learning_rate, setting.plan.momentum

    def correct(self, gradients: Mapping[str, Array]) -> None:
        self._steps += 1
        for name, correction in self._correction.items():
            gradients[name] += correction

    def finish(self) -> Groups:
        if self._steps == 0:
            return {}
        zeros = {name: np.zeros_like(array) for name, array in self._weights.items()}
        return {"control": {**zeros, **{name: self._change(name) for name in self._start}}}

    def keep(self) -> Groups:
        return {"own-control": {name: self._own[name] + self._change(name) for name in self._start}}

    def state(self) -> Mapping[str, Any]:
        return {"steps": self._steps}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._steps = state["steps"]

    def _change(self, name: str) -> Array:
        """c_i+ - c_i."""
        if self._steps == 0:
            return np.zeros_like(self._own[name])
        way = np.float32(self._rate * gradient_mass(self._steps, self._momentum))
        change: Array = (self._start[name] - self._weights[name]) / way - self._server[name]
        return change
