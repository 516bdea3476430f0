"""Checks for settings that differential privacy does not cover, and for statistics, each with a remedy.

The accountant counts noisy sums of clipped updates. Any other use of a client's data, or selection of what is
summed by it, would be an uncounted release.
"""

from collections.abc import Iterator

from edge_client.data.tasks.registry import learning_task
from edge_server.config.checks.groups import objectives_of
from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.privacy.mechanism import Gaussian
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.registry import WEIGHTINGS


def privacy_problems(config: Config, strategy: Strategy) -> Iterator[str]:
    """One line per component or figure that is incompatible with `[privacy]`; none without a mechanism."""
    if strategy.privacy is None:
        return
    yield from _components(config)
    yield from _groups(config)
    yield from _figures(config, strategy.privacy)
    if strategy.privacy.drawn:
        yield from _draw(config)


def statistics_problems(config: Config, strategy: Strategy) -> Iterator[str]:
    """One line per kind of privacy that does not cover statistics, with a remedy.

    The budget of `[privacy]` counts noisy sums of clipped updates. Masks hide numbers within a range known
    beforehand, so that a masked pass finds exact figures only where rough ones are stated.
    """
    asked, rough = config.federation.statistics, config.data.statistics
    if not (asked or (config.data.scaling == "federated" and rough is None)):
        return
    if strategy.privacy is not None:
        all_the_same = "to ask all the same, add privacy.mechanism=none"
        remedy = all_the_same if asked else 'state [data.statistics], or set mechanism = "none"'
        uncounted = "statistics of devices' data get no noise, and its budget would not count them"
        yield f"[privacy] mechanism: {uncounted}: {remedy}"
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


def _components(config: Config) -> Iterator[str]:
    spec = config.strategy
    if config.clients.mode == "buffered":
        yield _line("[clients] mode", "'buffered' plans no cohort whose holders could be counted", '"rounds"')
    selection, ratio, weighting = spec.selection.name, spec.ratio.name, spec.weighting.name
    if not SELECTIONS.traits(selection).is_blind:
        yield _line(
            "[strategy] selection", f"'{selection}' chooses by what clients sent before noise", '"uniform"'
        )
    if not RATIOS.traits(ratio).is_blind:
        yield _line("[strategy] ratio", f"'{ratio}' learns from what clients sent before noise", '"by-tier"')
    if WEIGHTINGS.traits(weighting).needs:
        yield _line(
            "[strategy] weighting", f"'{weighting}' gives weights that tell of clients' data", '"equal"'
        )
    if not COMBINERS.traits(spec.combiner.name).is_sum:
        reason = f"'{spec.combiner.name}' is no sum, so that one client may change it by more"
        yield _line("[strategy] combiner", reason, '"mean"')
    if PRUNERS.traits(spec.pruner.name).ranks_channels:
        reason = f"'{spec.pruner.name}' lets devices send scores of their data with the model"
        yield _line("[strategy] pruner", reason, '"index"')


def _groups(config: Config) -> Iterator[str]:
    """Additional groups are neither clipped nor noised."""
    for component, objective in objectives_of(config):
        if objective.sends:
            yield (
                f"[strategy] objectives: '{component.name}' sends {', '.join(sorted(objective.sends))} with "
                'the model, which gets no noise: leave it out, or set [privacy] mechanism = "none"'
            )
    for key, components in (("groups", config.strategy.groups), ("transforms", config.strategy.transforms)):
        for component in components:
            yield (
                f"[strategy] {key}: '{component.name}' makes more of updates than their noisy sum: "
                'leave it out, or set [privacy] mechanism = "none"'
            )


def _figures(config: Config, mechanism: Gaussian) -> Iterator[str]:
    clients = config.clients.num_clients
    if mechanism.delta >= 1 / clients:
        yield (
            f"[privacy] delta: {mechanism.delta:g} is not below 1 / num-clients: to give away one client's "
            f"data whole would be allowed: set delta = {0.1 / clients:.1g} or less"
        )
    count = max(1, round(config.clients.fraction * clients))
    first = mechanism.release({"asked": count, "population": clients})
    spent = mechanism.spent((first,))
    if mechanism.budget is not None and spent > mechanism.budget:
        yield (
            f"[privacy] budget: the first round alone spends epsilon {spent:.4g} of {mechanism.budget:g}: "
            "raise noise-multiplier, or the budget"
        )


def _draw(config: Config) -> Iterator[str]:
    """Where sub-models differ, the coordinates that a round changes reveal who was selected."""
    reason = "hides who was drawn only where all train the same sub-model"
    if len(set(map(str, config.tiers.ratios))) > 1:
        yield f"[privacy] amplification: {reason}, and [tiers] ratios differ: set amplification = false"
    if PRUNERS.traits(config.strategy.pruner.name).is_per_client:
        yield (
            f"[privacy] amplification: {reason}, and pruner '{config.strategy.pruner.name}' gives each its "
            "own: set amplification = false"
        )


def _line(key: str, reason: str, remedy: str) -> str:
    last = key.rpartition(" ")[2]
    return f'{key}: {reason}: set {last} = {remedy}, or [privacy] mechanism = "none"'
