"""The objectives with which a device can train without torch."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from edge_client.pruning.own_layers import ANCHOR
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.objectives.attentive import Attentive
from edge_client.training.step_graphs.running.objectives.igfl import Igfl
from edge_client.training.step_graphs.running.objectives.objective import Array, GraphObjective, Setting
from edge_client.training.step_graphs.running.objectives.ordered_dropout import OrderedDropout
from edge_client.training.step_graphs.running.objectives.scaffold import Scaffold
from schemas.errors import ConfigError
from schemas.strategy import Component
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


class MaskedLoss(GraphObjective):
    """Names the classes of the local examples to the graph (HeteroFL, Diao et al. 2021, section 3)."""

    def setup(self, setting: Setting) -> None:
        self._known = np.zeros(setting.classes, np.bool_)
        self._known[setting.labels] = True

    def inputs(self) -> Mapping[str, Array]:
        return {names.KNOWN: self._known}


class Distil(GraphObjective):
    """Gives the graph the received weights, whose answers the trained network keeps (Li and Hoiem 2016)."""

    def __init__(self, *, weight: float = 1.0) -> None:
        """The graph computes with the weight."""

    def setup(self, setting: Setting) -> None:
        self._received = {names.RECEIVED + name: array.copy() for name, array in setting.weights.items()}

    def inputs(self) -> Mapping[str, Array]:
        return self._received


class InGraph(GraphObjective):
    """All that the objective does is part of the graph."""


OBJECTIVES: Mapping[str, Callable[..., GraphObjective]] = {
    "attentive": Attentive,
    "batch-statistics": BatchStatistics,
    "distil": Distil,
    "igfl": Igfl,
    "magnitude-scores": MagnitudeScores,
    "masked-loss": MaskedLoss,
    "ordered-dropout": OrderedDropout,
    "personal": Personal,
    "prox": Prox,
    "scaffold": Scaffold,
    "scaler": InGraph,
}
DRAWN_INSIDE = frozenset({"attentive", "batch-statistics", "distil", "masked-loss", "scaler"})
"""Objectives that change the graph itself (`drawn_objectives`)."""


def unsupported(objectives: Iterable[Component]) -> str:
    """Why a device without torch cannot train with these objectives; empty if it can."""
    for component in objectives:
        if component.name not in OBJECTIVES:
            return f"the objective '{component.name}' needs torch on the device"
        if component.name == "ordered-dropout" and component.options.get("distil"):
            return "the objective 'ordered-dropout' with distil needs torch on the device"
    return ""


def build_graph_objectives(objectives: Iterable[Component]) -> tuple[GraphObjective, ...]:
    """The objectives of a plan, in order; all must be supported. `ConfigError` for wrong options."""
    return tuple(map(_build, objectives))


def _build(component: Component) -> GraphObjective:
    try:
        return OBJECTIVES[component.name](**component.options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"objective {component.name!r}: {error}") from error
