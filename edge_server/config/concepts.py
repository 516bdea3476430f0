"""The concepts of a strategy, each with its components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_client.compression.chain import CODECS
from edge_client.data.sources import SOURCES
from edge_client.models.registry import MODELS
from edge_client.system.plugins import Registry
from edge_client.training.objectives.registry import OBJECTIVES
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS
from edge_server.strategy.selection.schedules import SCHEDULES
from edge_server.strategy.weighting.registry import WEIGHTINGS

CONCEPTS: Mapping[str, tuple[str, Registry[Any]]] = {
    "fraction": ("The share of devices that a round asks, by round.", SCHEDULES),
    "selection": ("Which devices a round asks.", SELECTIONS),
    "ratio": ("The pruning ratio of each device.", RATIOS),
    "pruner": ("Which channels a device keeps.", PRUNERS),
    "objectives": ("What local training adds to the loss of the data.", OBJECTIVES),
    "groups": ("Arrays that travel beside the model.", GROUPS),
    "uplink, downlink": ("How updates and models are encoded.", CODECS),
    "transforms": ("What happens to updates before they are combined.", TRANSFORMS),
    "weighting": ("How much each update counts.", WEIGHTINGS),
    "combiner": ("How updates become one.", COMBINERS),
    "server-optimizer": ("How the combined update changes the global model.", SERVER_OPTIMIZERS),
    "network": ("The global model, `[model] name`.", MODELS),
    "data source": ("What `--data` and `[data] source` name.", SOURCES),
}
"""By the key that names a component: what the concept decides, and its components."""


def summary_of(component: object) -> str:
    """What a component does, in a line: its own summary, or the first sentence of its docstring."""
    found = component[0] if isinstance(component, tuple) else component
    stated = getattr(found, "summary", None)
    text = stated if isinstance(stated, str) else (getattr(found, "__doc__", None) or "")
    return " ".join(text.split("\n\n")[0].split())
