"""What a federation trusts its devices with: reports that no bound of the firewall can verify."""

from collections.abc import Mapping

from edge_server.config.config import Config
from edge_server.strategy.aggregation import combiners
from edge_server.strategy.groups import registry as groups
from edge_server.strategy.weighting import registry as weighting
from schemas.strategy import StrategySpec

TRUSTS: Mapping[str, Mapping[str, str]] = {
    "weighting": weighting.TRUSTS,
    "combiner": combiners.TRUSTS,
    "groups": groups.TRUSTS,
}
"""By concept and component, in words; `test_liars.py` tests that no other component trusts devices."""


def trusted_components(spec: StrategySpec) -> list[tuple[str, str, str]]:
    """The components that trust devices' reports, each as concept, name and words.

    If the combiner ignores weights, trust in reports that only affect weights has no effect.
    """
    named = [("combiner", spec.combiner.name), *(("groups", component.name) for component in spec.groups)]
    if spec.combiner.name not in combiners.IGNORES_WEIGHTS:
        named.insert(0, ("weighting", spec.weighting.name))
    return [(concept, name, TRUSTS[concept][name]) for concept, name in named if name in TRUSTS[concept]]


def warnings(config: Config) -> list[str]:
    """One line per component that trusts devices, if `[firewall] strict` is set."""
    if not config.firewall.strict:
        return []
    return [
        f"[strategy] {concept}: '{name}' takes its devices on trust: {words}"
        for concept, name, words in trusted_components(config.strategy)
    ]
