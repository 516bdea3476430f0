"""What a federation trusts its devices with: reports that no bound of the firewall can verify."""

from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import StrategySpec


def trusted_components(spec: StrategySpec) -> list[tuple[str, str, str]]:
    """The components that trust devices' reports, each as concept, name and words.

    If the combiner ignores weights, trust in reports that only affect weights has no effect.
    """
    combiner = COMBINERS.traits(spec.combiner.name)
    weighting = WEIGHTINGS.traits(spec.weighting.name) if combiner.takes_weights else None
    named = [
        ("weighting", spec.weighting.name, weighting.trusts if weighting else ""),
        ("combiner", spec.combiner.name, combiner.trusts),
        *(("groups", group.name, GROUPS.traits(group.name).trusts) for group in spec.groups),
    ]
    return [entry for entry in named if entry[2]]


def warnings(config: Config) -> list[str]:
    if not config.firewall.strict:
        return []
    return [
        f"[strategy] {concept}: '{name}' takes its devices on trust: {words}"
        for concept, name, words in trusted_components(config.strategy)
    ]
