"""Every local objective by name, and their construction from a plan."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from edge_client.system.plugins import Registry, options_of
from edge_client.training.objectives import feature_sums, fedmix, near_received
from edge_client.training.objectives.attentive import Attentive, MagnitudeScores
from edge_client.training.objectives.base import LocalObjective
from edge_client.training.objectives.feature_sums import Prototypes
from edge_client.training.objectives.heterofl import BatchStatistics, MaskedLoss, Scaler
from edge_client.training.objectives.near_received import Distil
from edge_client.training.objectives.ordered_dropout import OrderedDropout
from edge_client.training.objectives.output_energy import OutputEnergy
from edge_client.training.objectives.personal import Personal
from edge_client.training.objectives.scaffold import Igfl, Scaffold
from schemas.errors import ConfigError, nearest
from schemas.strategy import Component

OBJECTIVES: Registry[Callable[..., LocalObjective]] = Registry(
    "objective",
    {
        "attentive": Attentive,
        "batch-statistics": BatchStatistics,
        "class-means": feature_sums.ClassMeans,
        "distil": Distil,
        "igfl": Igfl,
        "magnitude-scores": MagnitudeScores,
        "masked-loss": MaskedLoss,
        "ordered-dropout": OrderedDropout,
        "output-energy": OutputEnergy,
        "personal": Personal,
        "mix": fedmix.Mix,
        "prototypes": Prototypes,
        "prox": near_received.Prox,
        "ridge": feature_sums.Ridge,
        "scaffold": Scaffold,
        "scaler": Scaler,
    },
)


def build_objectives(components: Iterable[Component]) -> tuple[LocalObjective, ...]:
    """Make the objectives of a plan in order; raises `ConfigError` for unknown names and options."""
    return tuple(map(_build, components))


def _build(component: Component) -> LocalObjective:
    make = OBJECTIVES.get(component.name)
    if make is None:
        raise ConfigError(f"unknown objective {component.name!r}{nearest(component.name, OBJECTIVES)}")
    parameters = options_of(make)
    options: dict[str, Any] = dict(component.options)
    for option in options:
        if option not in parameters:
            hint = nearest(option, parameters)
            raise ConfigError(f"objective {component.name!r} has no option {option!r}{hint}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise ConfigError(f"objective {component.name!r} needs the option {name!r}")
    try:
        return make(**options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"objective {component.name!r}: {error}") from error
