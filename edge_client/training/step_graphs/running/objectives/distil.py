"""The received network for Learning without Forgetting."""

from collections.abc import Mapping

from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective, Setting


class Distil(GraphObjective):
    """Gives the graph the received weights, whose answers the trained network is to keep."""

    def __init__(self, *, weight: float = 1.0) -> None:
        self._weight = weight

    def setup(self, setting: Setting) -> None:
        self._received = {names.RECEIVED + name: array.copy() for name, array in setting.weights.items()}

    def inputs(self) -> Mapping[str, Array]:
        return self._received
