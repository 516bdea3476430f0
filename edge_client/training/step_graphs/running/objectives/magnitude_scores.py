"""The L1 norms of channels."""

import numpy as np

from edge_client.training.step_graphs.running.objectives.objective import GraphObjective, Setting
from schemas.tensors.blobs import Groups


class MagnitudeScores(GraphObjective):
    """Sends the L1 norms of the channels' weights, divided by the layer's largest (Li et al. 2017)."""

    def __init__(self, *, layers: tuple[str, ...]) -> None:
        self._layers = layers

    def setup(self, setting: Setting) -> None:
        self._weights = setting.weights

    def finish(self) -> Groups:
        weights = {layer: self._weights[f"{layer}.weight"] for layer in self._layers}
        norms = {layer: np.abs(weight).reshape(len(weight), -1).sum(1) for layer, weight in weights.items()}
        tiny = np.finfo(np.float32).tiny
        return {"attention": {layer: norm / max(norm.max(), tiny) for layer, norm in norms.items()}}
