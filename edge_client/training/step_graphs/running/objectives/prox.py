"""FedProx's pull to the received weights."""

from collections.abc import Mapping

import numpy as np

from edge_client.pruning.own_layers import ANCHOR
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective, Setting


class Prox(GraphObjective):
    """Gradients of mu / 2 |w - w_received|^2 (FedProx, Li et al. 2020, eq. 2), or of the group `anchor`."""

    def __init__(self, *, mu: float = 0.01) -> None:
        self._mu = np.float32(mu)

    def setup(self, setting: Setting) -> None:
        self._weights = setting.weights
        anchor = setting.received.get(ANCHOR)
        self._start = {
            name: setting.weights[name].copy() if anchor is None else setting.array(anchor, name)
            for name in setting.trained
        }

    def correct(self, gradients: Mapping[str, Array]) -> None:
        for name, start in self._start.items():
            gradients[name] += self._mu * (self._weights[name] - start)
