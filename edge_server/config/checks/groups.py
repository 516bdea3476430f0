"""Checks that every additional group has an objective on devices and a rule on the server."""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from edge_client.models.registry import MODELS, entry
from edge_client.pruning.channel_selection import group_ratios
from edge_client.training.objectives.base import LocalObjective
from edge_client.training.objectives.registry import OBJECTIVES, build_objectives
from edge_client.training.step_graphs.running.objectives.registry import why_unsupported
from edge_server.config.config import Config
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.strategy import Strategy
from schemas.errors import ConfigError
from schemas.strategy import Component
from schemas.submodel import ChannelMap
from schemas.values import ModelSpec

# Checks of what devices without torch can train: objectives that no step graph can have.


def trainer_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Objectives that need torch, in a simulation of devices without it."""
    if "onnx" in config.simulation.trainers:
        for why in _reasons(config):
            yield ConfigError(
                why, key="[simulation] trainer", remedy='set trainer = "torch", or leave the objective out'
            )


def trainer_advice(config: Config) -> Iterator[str]:
    """One line if devices without torch would be left out of every round: the fleet is not known."""
    if reasons := [*_reasons(config)]:
        left_out = "Devices without torch are left out of this federation (guide: trainers)"
        yield f"advice: {'; '.join(reasons)}. {left_out}"


def _reasons(config: Config) -> Iterator[str]:
    reasons = (why_unsupported((component,)) for component in config.strategy.objectives)
    return (why for why in reasons if why)


# Checks the layer names in the tables of `[tiers] ratios`.


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


def objectives_of(config: Config) -> list[tuple[Component, LocalObjective]]:
    """The file's objectives with their definitions, without those of a pruner."""
    components = config.strategy.objectives
    return list(zip(components, build_objectives(components), strict=True))


def group_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """One line per group that is sent twice, not served, or not used."""
    senders = Counter(group for _, objective in objectives_of(config) for group in objective.sends)
    for group, count in senders.items():
        if count > 1:
            yield ConfigError(
                f"{count} of them send the group '{group}'",
                key="[strategy] objectives",
                remedy="leave all but one out",
            )
    yield from _not_served(config, strategy)
    yield from _not_used(config, strategy)
    yield from _not_encoded(config, strategy)


def _not_served(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Groups that an objective receives or sends without a rule on the server."""
    down = {rule.name for rule in strategy.groups if rule.downlink}
    up = {rule.name for rule in strategy.groups if rule.uplink}
    for component, objective in objectives_of(config):
        for group in sorted(objective.receives - down | objective.sends - up):
            does = "receives" if group in objective.receives - down else "sends"
            yield ConfigError(
                f"'{component.name}' {does} the group '{group}', which no rule serves",
                key="[strategy] objectives",
                remedy=_rule_for(group, "downlink" if does == "receives" else "uplink"),
            )


def _rule_for(group: str, direction: str) -> str:
    known = {name: make_component("group rule", GROUPS, Component(name=name)) for name in GROUPS}
    fitting = [name for name, rule in known.items() if rule.name == group and getattr(rule, direction)]
    if fitting:
        return f'add groups = ["{fitting[0]}"]'
    return "leave it out (a pruner that needs it adds it)"


def _not_used(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Rules without an objective, for which nothing is sent or received."""
    received = {group for _, objective in objectives_of(config) for group in objective.receives}
    sent = {group for _, objective in objectives_of(config) for group in objective.sends}
    for component, rule in zip(config.strategy.groups, strategy.groups, strict=True):
        idle = ["receives"] * (rule.downlink and rule.name not in received)
        idle += ["sends"] * (rule.uplink and rule.name not in sent)
        if idle:
            fitting = [
                name
                for name, objective in OBJECTIVES.items()
                if all(rule.name in getattr(objective, direction) for direction in idle)
            ]
            remedy = f'add objectives = ["{fitting[0]}"], or leave it out' if fitting else "leave it out"
            yield ConfigError(
                f"'{component.name}' is for the group '{rule.name}', which no objective {' or '.join(idle)}",
                key="[strategy] groups",
                remedy=remedy,
            )


def _not_encoded(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Codecs of models, which encode the global one, where sub-models have arrays of their own."""
    for rule in strategy.groups:
        if rule.owns and config.strategy.downlink != ():
            yield ConfigError(
                f"the group '{rule.name}' gives each tier arrays of its own, and codecs encode the "
                "one global model",
                key="[strategy] downlink",
                remedy="set downlink = []",
            )
