"""Statistics of batch normalisations' inputs for HeteroFL."""

from collections.abc import Mapping

import numpy as np

from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective
from schemas.tensors.blobs import Groups


class BatchStatistics(GraphObjective):
    """Sends mean and variance of each batch normalisation's input over all examples (HeteroFL, section 3)."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}

    def observe(self, observed: Mapping[str, Array], examples: int) -> None:
        for name, batch in observed.items():
            if name.startswith((names.COUNT, names.SUM, names.SQUARES)):
                self._sums[name] = self._sums.get(name, 0) + batch.astype(np.float64)

    def finish(self) -> Groups:
        statistics = {}
        for name in [name.removeprefix(names.COUNT) for name in self._sums if name.startswith(names.COUNT)]:
            count = self._sums[names.COUNT + name]
            mean = self._sums[names.SUM + name] / count
            variance = np.maximum(self._sums[names.SQUARES + name] / count - mean**2, 0)
            statistics[f"{name}.running_mean"] = mean.astype(np.float32)
            statistics[f"{name}.running_var"] = variance.astype(np.float32)
        return {"statistics": statistics} if statistics else {}
