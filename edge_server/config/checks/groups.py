"""Checks that every additional group has an objective on devices and a rule on the server."""

from collections import Counter
from collections.abc import Iterator

from edge_client.training.objectives.objective import LocalObjective
from edge_client.training.objectives.registry import OBJECTIVES, build_objectives
from edge_server.config.config import Config
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.strategy import Strategy
from schemas.errors import ConfigError
from schemas.strategy import Component


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
