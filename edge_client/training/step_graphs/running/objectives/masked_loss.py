"""The classes that a device has, for HeteroFL's masked loss."""

from collections.abc import Mapping

import numpy as np

from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective, Setting


class MaskedLoss(GraphObjective):
    """Names the classes of the local examples to the graph (HeteroFL, Diao et al. 2021, section 3)."""

    def setup(self, setting: Setting) -> None:
        self._known = np.zeros(setting.classes, np.bool_)
        self._known[setting.labels] = True

    def inputs(self) -> Mapping[str, Array]:
        return {names.KNOWN: self._known}
