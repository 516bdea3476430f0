"""Checks the layer names in the tables of `[tiers] ratios`."""

from collections.abc import Mapping
from functools import lru_cache

from edge_client.models.registry import MODELS, entry
from edge_client.pruning.channel_selection import group_ratios
from edge_server.config.config import Config
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.values import ModelSpec


def layer_problems(config: Config) -> list[ConfigError]:
    """One per tier whose table names layers that are missing or cannot be pruned.

    A user's network is checked only if `[model]` states its shapes; otherwise the run checks it at its start.
    """
    spec, problems = _model_spec(config), []
    for tier, ratio in enumerate(config.tiers.ratios, start=1):
        if spec is None or not isinstance(ratio, Mapping):
            continue
        try:
            group_ratios(
                entry(spec.name), ratio, _trace_layers(spec.name, spec.input_shape, spec.num_classes)
            )
        except ConfigError as error:
            problems.append(ConfigError(f"tier {tier} of '{spec.name}': {error}", key="[tiers] ratios"))
    return problems


def _model_spec(config: Config) -> ModelSpec | None:
    """The network to check; the layers of a shipped network do not depend on its shapes."""
    stated = config.model
    if stated.name not in MODELS and (stated.input_shape is None or config.num_classes is None):
        return None
    known = entry(stated.name)
    return ModelSpec(
        name=stated.name,
        input_shape=stated.input_shape or known.example_shape,
        num_classes=config.num_classes or known.example_outputs,
    )


@lru_cache(maxsize=8)
def _trace_layers(name: str, input_shape: tuple[int, ...], num_classes: int) -> ChannelMap:
    # With torch: most files have no such table.
    from edge_client.models.build import build_model
    from edge_client.pruning.channel_graph.trace import trace_channels

    spec = ModelSpec(name=name, input_shape=input_shape, num_classes=num_classes)
    return trace_channels(build_model(spec), input_shape)
