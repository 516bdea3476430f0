"""Hermes' own weights of a device."""

import numpy as np

from edge_client.training.step_graphs.running.objectives.objective import GraphObjective, Setting
from schemas.tensors.blobs import Groups


class Personal(GraphObjective):
    """Starts from this device's own values outside the last round's intersection (Hermes, Li et al. 2021)."""

    def setup(self, setting: Setting) -> None:
        self._weights = setting.weights
        shared = setting.received.get("overlap")
        if shared is None:
            return
        own, held = setting.kept.get("personal", {}), setting.kept.get("personal-held", {})
        for name, array in own.items():
            if name in self._weights:
                mask = np.logical_and(held[name], np.logical_not(shared[name]))
                np.copyto(self._weights[name], array, where=mask)

    def keep(self) -> Groups:
        own = {name: array.copy() for name, array in self._weights.items()}
        return {"personal": own, "personal-held": {n: np.ones(a.shape, bool) for n, a in own.items()}}
