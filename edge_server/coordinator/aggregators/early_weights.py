"""Which updates aggregator processes may add before their round is closed, and with which weights."""

import math

from edge_server.coordinator.run_context import RunContext
from edge_server.strategy.aggregation.updates import ClientUpdate, is_statistic
from edge_server.strategy.strategy import State
from schemas.messages import Update

MOST_NUMBERS = 4_000_000
"""Numbers of the largest model whose updates are added early: each process then needs 64 MB for their sum."""
EARLY_TRANSFORMS = frozenset({"fill-with-global"})
"""Transforms that need nothing that is known only when the round is closed."""


class EarlyWeights:
    """The weights that updates will likely have when their round is closed.

    Updates are not added early if the server itself looks at their numbers: at variances of normalisation, or
    to test them (the canary).
    """

    def __init__(self, context: RunContext) -> None:
        spec, parameters = context.config.strategy, context.channel_map.parameters
        self._weighting = context.strategy.weighting
        self._may = (
            context.strategy.summed
            and context.config.firewall.canary is None
            and {transform.name for transform in spec.transforms} <= EARLY_TRANSFORMS
            and not any(is_statistic(name) for name in parameters)
            and sum(math.prod(layout.shape) for layout in parameters.values()) <= MOST_NUMBERS
        )

    def weight(self, update: Update, state: State) -> int | None:
        """The whole weight of an update; None if it is not to be added early."""
        examples = update.metrics.examples
        if not self._may or not state.exact or not examples:
            return None
        counts = self._weighting.counts([ClientUpdate(update.device, update.spec, {}, examples)])
        return None if counts is None else counts[0]
