"""IGFL's client step."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from edge_client.training.objectives.formulas import gradient_mass
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective, Setting
from schemas.tensors.blobs import Groups


class Igfl(GraphObjective):
    """The individual's and the group's step (IGFL-C, Huang et al. 2021, Algorithm 2)."""

    def __init__(self, *, strength: float = 1.0) -> None:
        self._strength, self._steps = strength, 0

    def setup(self, setting: Setting) -> None:
        received, kept = setting.received.get("last-step", {}), setting.kept.get("own-step", {})
        plan, share = setting.plan, 1 / setting.plan.participants
        way = plan.learning_rate * gradient_mass(setting.steps, plan.momentum)
        self._factor = np.float32(1 + self._strength * share)
        self._weights = setting.weights
        self._start = {name: setting.weights[name].copy() for name in sorted(setting.trained)}
        self._own = {name: setting.array(kept, name) for name in self._start}
        self._constant = {
            name: (self._strength * (np.float32(share) * self._own[name] - setting.array(received, name)))
            / np.float32(way or 1.0)
            for name in self._start
        }

    def correct(self, gradients: Mapping[str, Array]) -> None:
        self._steps += 1
        if self._strength == 0:
            return
        for name, constant in self._constant.items():
            gradients[name] *= self._factor
            gradients[name] += constant

    def keep(self) -> Groups:
        return {
            "own-step": {
                name: self._weights[name] - start if self._steps else self._own[name]
                for name, start in self._start.items()
            }
        }

    def state(self) -> Mapping[str, Any]:
        return {"steps": self._steps}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._steps = state["steps"]
