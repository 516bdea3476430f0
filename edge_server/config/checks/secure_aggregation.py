"""Checks for settings that need more than a mean over holders, which masking does not provide."""

from collections.abc import Iterator

from edge_server.config.config import Config
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.registry import PLAIN
from schemas.security.secure_aggregation import MAX_COHORT

FROM_THE_SERVER = frozenset({"last-step", "widths"})
"""Groups that the server computes without single updates: from the global model, or from the tiers."""
_KEY = "[privacy] secure-aggregation"


def masking_problems(config: Config, strategy: Strategy) -> Iterator[str]:
    """One line per component that needs single updates, with a remedy."""
    if not config.privacy.secure_aggregation:
        return
    if config.privacy.mechanism != "none":
        yield (
            f"[privacy] mechanism: the server has to clip single updates, and {_KEY} shows their sum alone: "
            'set mechanism = "none", or leave secure-aggregation out'
        )
    yield from _components(config)
    yield from _groups(config, strategy)
    yield from _rounds(config, strategy)


def _components(config: Config) -> Iterator[str]:
    """Components that read single updates, or choose channels that do not nest."""
    spec = config.strategy
    for key, name, fitting, why in (
        ("pruner", spec.pruner.name, {"index"}, "cuts channels that devices do not share as a prefix"),
        ("combiner", spec.combiner.name, {"mean"}, "goes by single updates"),
        ("weighting", spec.weighting.name, set(PLAIN), "goes by single updates"),
        ("selection", spec.selection.name, {"largest-tier", "uniform"}, "goes by single updates"),
        ("ratio", spec.ratio.name, {"by-tier"}, "goes by single devices' results"),
    ):
        if name not in fitting:
            remedy = " or ".join(f'{key} = "{name}"' for name in sorted(fitting))
            yield f"[strategy] {key}: '{name}' {why}, and {_KEY} shows their sum alone: set {remedy}"
    for component in spec.uplink or ():
        yield (
            f"[strategy] uplink: '{component.name}' makes single updates smaller, and those of {_KEY} look "
            "like noise, which cannot be: leave uplink out"
        )
    for component in spec.transforms:
        yield (
            f"[strategy] transforms: '{component.name}' changes single updates, and {_KEY} shows their sum "
            "alone: leave it out"
        )


def _groups(config: Config, strategy: Strategy) -> Iterator[str]:
    """Additional groups would need masking rules of their own; measured ones are not sent at all."""
    for component, rule in zip(config.strategy.groups, strategy.groups, strict=True):
        if component.name not in FROM_THE_SERVER and not rule.measured:
            how = "devices send it one by one" if rule.uplink else "it is made of single updates"
            yield (
                f"[strategy] groups: '{component.name}': {how}, and {_KEY} shows the model's sum alone: "
                "leave it and its objective out"
            )


def _rounds(config: Config, strategy: Strategy) -> Iterator[str]:
    clients, wanted = config.clients, config.privacy.min_holders
    if clients.mode == "buffered":
        yield f'{_KEY}: devices agree on masks for one round: set [clients] mode = "rounds"'
    if clients.over_select > 1:
        yield f"{_KEY}: devices that are let go count as dropped: set [clients] over-select = 1"
    asked = strategy.count(1, clients.num_clients)
    if asked < wanted:
        yield (
            f"[privacy] min-holders: {wanted}, but a round asks {asked} of {clients.num_clients} devices: no "
            "sum would ever be shown. Raise [clients] num-clients or fraction"
        )
    if asked > MAX_COHORT:
        yield f"[clients] fraction: {asked} devices a round, at most {MAX_COHORT} agree on masks: lower it"
