"""Checks for rounds of statistics, in which devices send sums of their data."""

from collections.abc import Iterator

from edge_client.data.tasks.registry import learning_task
from edge_server.config.config import Config
from edge_server.strategy.strategy import Strategy


def statistics_problems(config: Config, strategy: Strategy) -> Iterator[str]:
    """One line per kind of privacy that does not cover statistics, with a remedy.

    The budget of `[privacy]` counts noisy sums of clipped updates. Masks hide numbers within a range known
    beforehand, so that a masked pass finds exact figures only where rough ones are stated.
    """
    asked, rough = config.federation.statistics, config.data.statistics
    if not (asked or (config.data.scaling == "federated" and rough is None)):
        return
    if strategy.privacy is not None:
        remedy = (
            "to ask all the same, add privacy.mechanism=none"
            if asked
            else 'state [data.statistics], or set mechanism = "none"'
        )
        yield (
            "[privacy] mechanism: statistics of devices' data get no noise, and its budget would not count "
            f"them: {remedy}"
        )
    if not config.privacy.secure_aggregation:
        return
    if rough is None:
        yield (
            "[privacy] secure-aggregation: masks hide numbers within a known range: state a rough mean and "
            "std of each feature, for instance data.statistics={mean=[20],std=[10]}"
            + ("" if asked else "; `edge-server statistics` finds the exact ones")
        )
    elif learning_task(config.model.task).labels == "numbers" and not rough.target_mean:
        yield (
            "[data.statistics] target-mean: masks hide numbers within a known range: state a rough "
            "target-mean and target-std of each number that is learned"
        )
