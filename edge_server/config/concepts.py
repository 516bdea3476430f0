"""The concepts of a strategy, each with its components."""

from collections.abc import Mapping
from typing import Any

from edge_client.compression.chain import CODECS
from edge_client.data.sources import SOURCES
from edge_client.data.tasks.registry import LOSSES, TASKS
from edge_client.models.registry import MODELS
from edge_client.system.plugins import Registry
from edge_client.training.objectives.registry import OBJECTIVES
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS
from edge_server.strategy.pruning.own_parts import OWN_PARTS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SCHEDULES, SELECTIONS
from edge_server.strategy.weighting.registry import WEIGHTINGS

_MEANINGS: tuple[tuple[Registry[Any], str], ...] = (
    (SCHEDULES, "A value by round: the share of devices (`fraction`), or the local epochs (`local-epochs`)."),
    (SELECTIONS, "Which devices a round asks (`selection`)."),
    (RATIOS, "The pruning ratio of each device (`ratio`)."),
    (PRUNERS, "Which channels a device keeps (`pruner`)."),
    (OWN_PARTS, "Which layers each device keeps for itself (`own`)."),
    (OBJECTIVES, "What local training adds to the loss of the data (`objectives`)."),
    (GROUPS, "Arrays that travel with the model (`groups`)."),
    (CODECS, "How updates and models are encoded (`uplink`, `downlink`)."),
    (TRANSFORMS, "What happens to updates before they are combined (`transforms`)."),
    (WEIGHTINGS, "How much each update counts (`weighting`)."),
    (COMBINERS, "How updates become one (`combiner`)."),
    (SERVER_OPTIMIZERS, "How the combined update changes the global model (`server-optimizer`)."),
    (TASKS, "What is learned: labels, loss and metrics (`[model] task`)."),
    (LOSSES, "How wrong the answer to an example is; a learning task names one."),
    (MODELS, "The global model (`[model] name`)."),
    (SOURCES, "Data of a device or of the server (`--data`, `[data] source`)."),
)
# By concept, as entry points name it: its purpose with its key, and its components.
CONCEPTS: Mapping[str, tuple[str, Registry[Any]]] = {
    registry.concept: (meaning, registry) for registry, meaning in _MEANINGS
}


def summary_of(component: object) -> str:
    """A component's summary, or the first sentence of its docstring."""
    found = component[0] if isinstance(component, tuple) else component
    stated = getattr(found, "summary", None)
    text = stated if isinstance(stated, str) else (getattr(found, "__doc__", None) or "")
    return " ".join(text.split("\n\n")[0].split())
