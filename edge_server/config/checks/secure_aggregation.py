"""Checks for settings that need more than a mean over holders, which masking does not provide."""

from collections.abc import Iterator
from operator import attrgetter

from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.errors import ConfigError
from schemas.security.secure_aggregation import MAX_COHORT

_KEY = "[privacy] secure-aggregation"


def masking_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """One line per component that needs single updates, with a remedy."""
    if not config.privacy.secure_aggregation:
        return
    if config.privacy.mechanism != "none":
        yield ConfigError(
            f"the server has to clip single updates, and {_KEY} shows their sum alone",
            key="[privacy] mechanism",
            remedy='set mechanism = "none", or leave secure-aggregation out',
        )
    yield from _components(config)
    yield from _groups(config, strategy)
    yield from _rounds(config, strategy)


def _components(config: Config) -> Iterator[ConfigError]:
    """Components that read single updates, or choose channels that do not nest."""
    spec, is_blind = config.strategy, attrgetter("is_blind")
    single = "goes by single updates"
    prefixes = PRUNERS.having(attrgetter("is_prefix"))
    for key, name, fitting, why in (
        ("pruner", spec.pruner.name, prefixes, "cuts channels that devices do not share as a prefix"),
        ("combiner", spec.combiner.name, COMBINERS.having(attrgetter("is_sum")), single),
        ("weighting", spec.weighting.name, WEIGHTINGS.having(attrgetter("masked")), single),
        ("selection", spec.selection.name, SELECTIONS.having(is_blind), single),
        ("ratio", spec.ratio.name, RATIOS.having(is_blind), "goes by single devices' results"),
    ):
        if name not in fitting:
            remedy = " or ".join(f'{key} = "{name}"' for name in fitting)
            yield ConfigError(
                f"'{name}' {why}, and {_KEY} shows their sum alone",
                key=f"[strategy] {key}",
                remedy=f"set {remedy}",
            )
    for component in spec.uplink or ():
        yield ConfigError(
            f"'{component.name}' makes single updates smaller, and those of {_KEY} look like "
            "noise, which cannot be compressed",
            key="[strategy] uplink",
            remedy="leave uplink out",
        )
    for component in spec.transforms:
        yield ConfigError(
            f"'{component.name}' changes single updates, and {_KEY} shows their sum alone",
            key="[strategy] transforms",
            remedy="leave it out",
        )


def _groups(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Additional groups would need masking rules of their own; measured ones are not sent at all."""
    for component, rule in zip(config.strategy.groups, strategy.groups, strict=True):
        traits = GROUPS.traits(component.name)
        if traits.is_sum and len(set(map(str, config.tiers.ratios))) > 1:
            yield ConfigError(
                f"'{component.name}': tiers have sums of different features, and {_KEY} shows those of all",
                key="[tiers] ratios",
                remedy="give all tiers one ratio, such as ratios = [0.0]",
            )
        if not (traits.of_server or traits.is_sum or rule.measured):
            how = "devices send it one by one" if rule.uplink else "it is made of single updates"
            yield ConfigError(
                f"'{component.name}': {how}, and {_KEY} shows the model's sum alone",
                key="[strategy] groups",
                remedy="leave it and its objective out",
            )


def _rounds(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    clients, wanted = config.clients, config.privacy.min_holders
    if clients.mode == "buffered":
        yield ConfigError(
            "devices agree on masks for one round", key=_KEY, remedy='set [clients] mode = "rounds"'
        )
    if clients.over_select > 1:
        yield ConfigError(
            "devices that are let go count as dropped", key=_KEY, remedy="set [clients] over-select = 1"
        )
    if len(set(config.trained_parts)) > 1:
        yield ConfigError(
            "masks hide one list of arrays, and tiers would send unlike ones",
            key="[tiers] train",
            remedy="set [training] train for all tiers",
        )
    asked = strategy.count(1, clients.num_clients)
    if asked < wanted:
        yield ConfigError(
            f"{wanted}, but a round asks {asked} of {clients.num_clients} devices: "
            "no sum would ever be shown",
            key="[privacy] min-holders",
            remedy="raise [clients] num-clients or fraction",
        )
    if asked > MAX_COHORT:
        yield ConfigError(
            f"{asked} devices a round, at most {MAX_COHORT} agree on masks",
            key="[clients] fraction",
            remedy="lower it",
        )
