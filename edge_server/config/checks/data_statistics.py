"""Checks for rounds of statistics, in which devices send sums of their data."""

from collections.abc import Iterator

from edge_server.config.config import Config
from edge_server.strategy.strategy import Strategy


def statistics_problems(config: Config, strategy: Strategy) -> Iterator[str]:
    """One line per kind of privacy that does not cover statistics, with a remedy.

    The budget of `[privacy]` counts noisy sums of clipped updates, and masks hide updates of a model alone.
    """
    asks = config.data.scaling == "federated" and config.data.statistics is None
    if not (config.federation.statistics or asks):
        return
    without = "do without them and state [data.statistics]"
    if strategy.privacy is not None:
        yield (
            "[privacy] mechanism: statistics of devices' data get no noise, and its budget would not count "
            f'them: set mechanism = "none", or {without}'
        )
    if config.privacy.secure_aggregation:
        yield (
            "[privacy] secure-aggregation: each device sends its statistics by itself, without masks: "
            f"leave it out, or {without}"
        )
