"""Which strategies need no more of a round's updates than their sum.

The sum of such a strategy's updates is exact (`aggregation.accumulator`), so it may be added in parts, in any
order: by several processes, or at several sites. What a device sends besides its model (metrics, scores,
small groups) is still seen device by device.
"""

from collections.abc import Iterator

from edge_server.strategy.aggregation.combiners import SUMS
from edge_server.strategy.aggregation.transforms import SINGLE
from edge_server.strategy.groups.registry import IGNORES_MODELS
from edge_server.strategy.selection.policies import COMPARES_MODELS
from edge_server.strategy.weighting.registry import COUNTED
from schemas.strategy import StrategySpec


def needs_each_update(spec: StrategySpec) -> Iterator[str]:
    """The components that need every update by itself, as "combiner 'median'"; none for sums."""
    if spec.combiner.name not in SUMS:
        yield f"combiner '{spec.combiner.name}'"
    if spec.weighting.name not in COUNTED:
        yield f"weighting '{spec.weighting.name}'"
    if spec.selection.name in COMPARES_MODELS:
        yield f"selection '{spec.selection.name}'"
    for transform in spec.transforms:
        if transform.name not in SINGLE:
            yield f"transform '{transform.name}'"
    for group in spec.groups:
        if group.name not in IGNORES_MODELS:
            yield f"group '{group.name}'"
