"""FjORD's widths, one for each step."""

from collections.abc import Mapping
from typing import Any

from edge_client.pruning.index_sets import submodel_index_set
from edge_client.pruning.slicing import submodel_map
from edge_client.training.objectives.formulas import drawn_width, smaller_specs
from edge_client.training.step_graphs.running.objectives.objective import (
    Array,
    GraphObjective,
    Setting,
    Width,
)


class OrderedDropout(GraphObjective):
    """Trains one width per step (FjORD, Horvath et al. 2021); a smaller width has a graph of its own."""

    def __init__(self, *, own: float | None = None, distil: float = 0.0) -> None:
        self._own = own
        self.widths: list[Width] = []
        self._drawn = 0

    def setup(self, setting: Setting) -> None:
        self._seed = setting.plan.seed
        if setting.channel_map is None:
            return
        own = submodel_map(setting.channel_map, setting.spec)
        for place, spec in enumerate(smaller_specs(setting.received.get("widths", {}))):
            sets = {name: submodel_index_set(layout, spec) for name, layout in own.parameters.items()}
            self.widths.append(Width(place, sets, spec.share(own)))

    def width(self) -> Width | None:
        chosen = drawn_width(self._seed, self._drawn, smaller=len(self.widths), own=self._own)
        return self.widths[chosen] if chosen < len(self.widths) else None

    def correct(self, gradients: Mapping[str, Array]) -> None:
        self._drawn += 1

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self._drawn}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._drawn = state["drawn"]
