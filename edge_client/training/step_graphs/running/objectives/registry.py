"""The objectives with which a device can train without torch."""

from collections.abc import Callable, Iterable, Mapping

from edge_client.training.step_graphs.running.objectives.attentive import Attentive
from edge_client.training.step_graphs.running.objectives.batch_statistics import BatchStatistics
from edge_client.training.step_graphs.running.objectives.distil import Distil
from edge_client.training.step_graphs.running.objectives.igfl import Igfl
from edge_client.training.step_graphs.running.objectives.magnitude_scores import MagnitudeScores
from edge_client.training.step_graphs.running.objectives.masked_loss import MaskedLoss
from edge_client.training.step_graphs.running.objectives.objective import GraphObjective
from edge_client.training.step_graphs.running.objectives.ordered_dropout import OrderedDropout
from edge_client.training.step_graphs.running.objectives.personal import Personal
from edge_client.training.step_graphs.running.objectives.prox import Prox
from edge_client.training.step_graphs.running.objectives.scaffold import Scaffold
from schemas.errors import ConfigError
from schemas.strategy import Component


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
"""Objectives that a device without torch can train with, by name."""
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
