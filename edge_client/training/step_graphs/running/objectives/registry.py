"""The objectives with which a device can train without torch."""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

import numpy as np

from edge_client.pruning.index_sets import submodel_index_set, submodel_map
from edge_client.pruning.update_coordinates import ANCHOR
from edge_client.training.objectives.formulas import drawn_width, gradient_mass, smaller_specs
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.objectives.objective import (
    Array,
    GraphObjective,
    Setting,
    Width,
)
from schemas import errors, strategy
from schemas.tensors.arrays import Groups


class Attentive(GraphObjective):
    """Sends the last epoch's mean attention per channel (ATTENDING, eq. 6), which the graph observes."""

    changing: ClassVar[tuple[str, ...]] = ("totals", "examples")

    def __init__(self, *, layers: tuple[str, ...], lowest: bool = False) -> None:
        self._layers, self._lowest = layers, lowest
        self._totals: dict[str, Array] = {}
        self._examples = 0

    def start_epoch(self) -> None:
        self._totals, self._examples = {}, 0

    def observe(self, observed: Mapping[str, Array], examples: int) -> None:
        self._examples += examples
        for layer in self._layers:
            batch = observed[names.ATTENTION + layer]
            self._totals[layer] = self._totals[layer] + batch if layer in self._totals else batch.copy()

    def finish(self) -> Groups:
        if not self._totals:
            return {}
        scores = {name: (total / self._examples).astype(np.float32) for name, total in self._totals.items()}
        return {"attention": {name: 1 - array for name, array in scores.items()} if self._lowest else scores}


class OutputEnergy(Attentive):
    """Sends the energies of channels in what reads them, divided by the layer's largest."""

    def finish(self) -> Groups:
        tiny = np.finfo(np.float32).tiny
        shares = {layer: total / max(total.max(), tiny) for layer, total in self._totals.items()}
        return (
            {"attention": {layer: share.astype(np.float32) for layer, share in shares.items()}}
            if shares
            else {}
        )


class Igfl(GraphObjective):
    """The individual's and the group's step (IGFL-C, Huang et al. 2021, Algorithm 2)."""

    changing: ClassVar[tuple[str, ...]] = ("steps",)

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


class OrderedDropout(GraphObjective):
    """Trains one width per step (FjORD, Horvath et al. 2021); a smaller width has a graph of its own."""

    changing: ClassVar[tuple[str, ...]] = ("drawn",)

    def __init__(self, *, own: float | None = None, distil: float = 0.0) -> None:
        self._own = own
        self.widths: list[Width] = []
        self._drawn = 0

    def setup(self, setting: Setting) -> None:
        self.seed = setting.plan.seed
        if setting.channel_map is None:
            return
        own = submodel_map(setting.channel_map, setting.spec)
        for place, spec in enumerate(smaller_specs(setting.received.get("widths", {}))):
            sets = {name: submodel_index_set(layout, spec) for name, layout in own.parameters.items()}
            self.widths.append(Width(place, sets, spec.share(own)))

    def width(self) -> Width | None:
        chosen = drawn_width(self.seed, self._drawn, smaller=len(self.widths), own=self._own)
        return self.widths[chosen] if chosen < len(self.widths) else None

    def correct(self, gradients: Mapping[str, Array]) -> None:
        self._drawn += 1


class Scaffold(GraphObjective):
    """Correct gradients by c - c_i (SCAFFOLD, Karimireddy et al. 2020, Algorithm 1, option II)."""

    changing: ClassVar[tuple[str, ...]] = ("steps",)

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

    def _change(self, name: str) -> Array:
        """c_i+ - c_i."""
        if self._steps == 0:
            return np.zeros_like(self._own[name])
        way = np.float32(self._rate * gradient_mass(self._steps, self._momentum))
        change: Array = (self._start[name] - self._weights[name]) / way - self._server[name]
        return change


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


class Sums(GraphObjective):
    """Runs no step: the trainer sums what the head of the inference graph takes (`ridge`, `class-means`)."""

    def __init__(self, *, clip: float | None = None) -> None:
        self.clip = clip


class InGraph(GraphObjective):
    """All that the objective does is part of the graph."""


OBJECTIVES: Mapping[str, Callable[..., GraphObjective]] = {
    "attentive": Attentive,
    "batch-statistics": BatchStatistics,
    "class-means": Sums,
    "distil": Distil,
    "igfl": Igfl,
    "magnitude-scores": MagnitudeScores,
    "masked-loss": MaskedLoss,
    "ordered-dropout": OrderedDropout,
    "output-energy": OutputEnergy,
    "personal": Personal,
    "prox": Prox,
    "ridge": Sums,
    "scaffold": Scaffold,
    "scaler": InGraph,
}
DRAWN_INSIDE = frozenset(
    {"attentive", "batch-statistics", "distil", "masked-loss", "output-energy", "scaler"}
)
"""Objectives that change the graph itself (`drawn_objectives`)."""


SUMS = {"ridge": True, "class-means": False}
"""Objectives of tasks without steps, which need no step graph; whether they sum products of features."""


def sums_gram(objectives: Iterable[strategy.Component]) -> bool | None:
    """Whether a plan of one of `SUMS` sums products of features; None for a plan of steps."""
    return next((SUMS[component.name] for component in objectives if component.name in SUMS), None)


def why_unsupported(objectives: Iterable[strategy.Component]) -> str:
    """Why a device without torch cannot train with these objectives; empty if it can."""
    for component in objectives:
        if component.name not in OBJECTIVES:
            return f"the objective '{component.name}' needs torch on the device"
        if component.name == "ordered-dropout" and component.options.get("distil"):
            return "the objective 'ordered-dropout' with distil needs torch on the device"
    return ""


def build_graph_objectives(objectives: Iterable[strategy.Component]) -> tuple[GraphObjective, ...]:
    """The objectives of a plan, in order; all must be supported. `ConfigError` for wrong options."""
    return tuple(map(_build, objectives))


def _build(component: strategy.Component) -> GraphObjective:
    try:
        return OBJECTIVES[component.name](**component.options)
    except (TypeError, ValueError) as error:
        raise errors.ConfigError(f"objective {component.name!r}: {error}") from error
