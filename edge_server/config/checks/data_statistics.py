"""Checks for rounds of statistics, in which devices send sums of their data."""

from collections.abc import Iterator

from edge_server.config.config import Config
from edge_server.strategy.strategy import Strategy


def statistics_problems(config: Config, strategy: Strategy) -> Iterator[str]:
    """One line per kind of privacy that does not cover statistics, with a remedy.

    The budget of `[privacy]` counts noisy sums of clipped updates. Masks hide numbers within a range known
    beforehand, which statistics are to find.
    """
    asked = config.federation.statistics
    if not (asked or (config.data.scaling == "federated" and config.data.statistics is None)):
        return
    if strategy.privacy is not None:
        yield (
            "[privacy] mechanism: statistics of devices' data get no noise, and its budget would not count "
            f"them: {_remedy('mechanism', 'none', asked=asked)}"
        )
    if config.privacy.secure_aggregation:
        yield (
            "[privacy] secure-aggregation: each device sends its statistics by itself, without masks: "
            f"{_remedy('secure-aggregation', 'false', asked=asked)}"
        )


def _remedy(key: str, value: str, *, asked: bool) -> str:
    """What to do where a command has `asked` for statistics, or else scaling needs them."""
    if asked:
        return f"to ask all the same, add privacy.{key}={value}"
    return f"state [data.statistics], or set {key} = {value}"
