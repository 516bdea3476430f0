"""Checks for settings that differential privacy does not cover, and for statistics, each with a remedy.

The accountant counts noisy sums of clipped updates. Any other use of a client's data, or selection of what is
summed by it, would be an uncounted release.
"""

from collections.abc import Iterator

from edge_client.data.tasks.registry import learning_task
from edge_server.config.checks.groups import objectives_of
from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.privacy.mechanism import Gaussian
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.errors import ConfigError


def privacy_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """One line per component or figure that is incompatible with `[privacy]`; none without a mechanism."""
    if strategy.privacy is None:
        return
    sums = strategy.privacy.unit == "example"
    yield from _sums(config, strategy) if sums else _components(config)
    yield from _groups(config, sums=sums)
    yield from _figures(config, strategy.privacy)
    if strategy.privacy.drawn:
        yield from _draw(config)


def statistics_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
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
        yield ConfigError(uncounted, key="[privacy] mechanism", remedy=remedy)
    if not config.privacy.secure_aggregation:
        return
    if rough is None:
        exact = "" if asked else "; `edge-server statistics` finds the exact ones"
        yield ConfigError(
            "masks hide numbers within a known range",
            key="[privacy] secure-aggregation",
            remedy="state a rough mean and std of each feature, for instance "
            f"data.statistics={{mean=[20],std=[10]}}{exact}",
        )
    elif learning_task(config.model.task).labels == "numbers" and not rough.target_mean:
        yield ConfigError(
            "masks hide numbers within a known range",
            key="[data.statistics] target-mean",
            remedy="state a rough target-mean and target-std of each number that is learned",
        )


def _components(config: Config) -> Iterator[ConfigError]:
    spec = config.strategy
    if config.clients.mode == "buffered":
        yield _problem(
            "[clients] mode", "'buffered' plans no cohort whose holders could be counted", '"rounds"'
        )
    selection, ratio, weighting = spec.selection.name, spec.ratio.name, spec.weighting.name
    if not SELECTIONS.traits(selection).is_blind:
        yield _problem(
            "[strategy] selection", f"'{selection}' chooses by what clients sent before noise", '"uniform"'
        )
    if not RATIOS.traits(ratio).is_blind:
        yield _problem(
            "[strategy] ratio", f"'{ratio}' learns from what clients sent before noise", '"by-tier"'
        )
    if WEIGHTINGS.traits(weighting).needs:
        yield _problem(
            "[strategy] weighting", f"'{weighting}' gives weights that tell of clients' data", '"equal"'
        )
    if not COMBINERS.traits(spec.combiner.name).is_sum:
        reason = f"'{spec.combiner.name}' is not a sum, so that one client may change it by more"
        yield _problem("[strategy] combiner", reason, '"mean"')
    if PRUNERS.traits(spec.pruner.name).ranks_channels:
        reason = f"'{spec.pruner.name}' lets devices send scores of their data with the model"
        yield _problem("[strategy] pruner", reason, '"index"')


def _sums(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Sums over examples of bounded features get noise once: what else would read them is refused."""
    spec, without = config.strategy, 'or [privacy] mechanism = "none"'
    if isinstance(config.privacy.clip, str):
        yield ConfigError(
            "sums over examples need a length that no features exceed",
            key="[privacy] clip",
            remedy="state the usual length of the head's inputs",
        )
    if config.training.mirror:
        yield ConfigError(
            f"an example counts {config.training.copies} times in the sums, and noise covers it once",
            key="[training] mirror",
            remedy=f"leave it out, {without}",
        )
    if config.privacy.amplification:
        yield ConfigError(
            "devices are drawn, and sums are of examples",
            key="[privacy] amplification",
            remedy="set amplification = false",
        )
    if len(set(map(str, config.tiers.ratios))) > 1:
        reason = "each tier's head would read the same examples once more"
        yield ConfigError(reason, key="[tiers] ratios", remedy=f"set ratios = [0.0], {without}")
    if config.privacy.secure_aggregation:
        yield ConfigError(
            "noise is added to sums that the server can read",
            key="[privacy] secure-aggregation",
            remedy=f"set secure-aggregation = false, {without}",
        )
    if config.clients.mode == "buffered":
        yield _problem("[clients] mode", "'buffered' sums some examples in several rounds", '"rounds"')
    if not all(SELECTIONS.traits(spec.selection.name).is_blind for _ in strategy.summing):
        yield _problem("[strategy] selection", "it chooses by what clients sent before noise", '"uniform"')


def _groups(config: Config, *, sums: bool) -> Iterator[ConfigError]:
    """Additional groups are neither clipped nor noised, but for sums over bounded examples."""
    for component, objective in objectives_of(config):
        if objective.sends and not (sums and objective.bounds_examples):
            yield ConfigError(
                f"'{component.name}' sends {', '.join(sorted(objective.sends))} with the model, which "
                "gets no noise",
                key="[strategy] objectives",
                remedy='leave it out, or set [privacy] mechanism = "none"',
            )
    for key, components in (("groups", config.strategy.groups), ("transforms", config.strategy.transforms)):
        for component in components:
            if sums and key == "groups" and GROUPS.traits(component.name).bounds_examples:
                continue
            yield ConfigError(
                f"'{component.name}' makes more of updates than their noisy sum",
                key=f"[strategy] {key}",
                remedy='leave it out, or set [privacy] mechanism = "none"',
            )


def _figures(config: Config, mechanism: Gaussian) -> Iterator[ConfigError]:
    clients = config.clients.num_clients
    if mechanism.delta >= 1 / clients:
        yield ConfigError(
            f"{mechanism.delta:g} is not below 1 / num-clients: to give away one client's data "
            "whole would be allowed",
            key="[privacy] delta",
            remedy=f"set delta = {0.1 / clients:.1g} or less",
        )
    count = max(1, round(config.clients.fraction * clients))
    first = mechanism.release({"asked": count, "population": clients})
    spent = mechanism.spent((first,))
    if mechanism.budget is not None and spent > mechanism.budget:
        yield ConfigError(
            f"the first round alone spends epsilon {spent:.4g} of {mechanism.budget:g}",
            key="[privacy] budget",
            remedy="raise noise-multiplier, or the budget",
        )


def _draw(config: Config) -> Iterator[ConfigError]:
    """Where sub-models differ, the coordinates that a round changes reveal who was selected."""
    reason = "hides who was drawn only where all train the same sub-model"
    if len(set(map(str, config.tiers.ratios))) > 1:
        yield ConfigError(
            f"{reason}, and [tiers] ratios differ",
            key="[privacy] amplification",
            remedy="set amplification = false",
        )
    if PRUNERS.traits(config.strategy.pruner.name).is_per_client:
        yield ConfigError(
            f"{reason}, and pruner '{config.strategy.pruner.name}' gives each its own",
            key="[privacy] amplification",
            remedy="set amplification = false",
        )


def _problem(key: str, reason: str, value: str) -> ConfigError:
    remedy = f'set {key.rpartition(" ")[2]} = {value}, or [privacy] mechanism = "none"'
    return ConfigError(reason, key=key, remedy=remedy)
