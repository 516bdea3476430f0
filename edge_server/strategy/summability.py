"""Which strategies need no more of a round's updates than their sum.

The sum of such a strategy's updates is exact (`aggregation.accumulator`), so it may be added in parts, in any
order: by several processes, or at several sites. What a device sends besides its model (metrics, scores,
small groups) is still seen device by device.
"""

from collections.abc import Iterator

from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.selection.policies import SELECTIONS
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import StrategySpec


def needs_each_update(spec: StrategySpec) -> Iterator[str]:
    """The components that need every update by itself, as "combiner 'median'"; none for sums."""
    if not COMBINERS.traits(spec.combiner.name).is_sum:
        yield f"combiner '{spec.combiner.name}'"
    if not WEIGHTINGS.traits(spec.weighting.name).counted:
        yield f"weighting '{spec.weighting.name}'"
    if SELECTIONS.traits(spec.selection.name).compares_models:
        yield f"selection '{spec.selection.name}'"
    for transform in spec.transforms:
        if not TRANSFORMS.traits(transform.name).is_single:
            yield f"transform '{transform.name}'"
    for group in spec.groups:
        if not GROUPS.traits(group.name).ignores_models:
            yield f"group '{group.name}'"
