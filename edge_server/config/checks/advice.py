"""Advice for valid files: where another recipe suits the fleet better, and which devices cannot take part.

Guides: deploy/docs/guides/compare/recipes.md, deploy/docs/guides/boards/trainers.md.
"""

from collections.abc import Iterator, Mapping

from edge_client.data.tasks.registry import learning_task
from edge_server.config.checks.groups import trainer_advice
from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS, TRIM
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.pruning.trained_part import ALL
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import StrategySpec

ORDERED_DROPOUT = "ordered-dropout"


def advice(config: Config) -> Iterator[str]:
    """One line per better choice, with the figures' page; nothing for files without one."""
    yield from trainer_advice(config)
    levels = config.tiers.levels
    named = {component.name for component in config.strategy.objectives}
    transforms = {component.name for component in config.strategy.transforms}
    combiner, count = config.strategy.combiner, config.clients.num_clients
    if config.training.optimizer == "sgd" and config.training.learning_rate < 0.005:
        yield (
            f"advice: SGD learns slowly at {config.training.learning_rate:g}. A learning-rate without an "
            'optimizer is that of SGD: set optimizer = "adam" if you mean Adam'
        )
    untested, boxes = config.data.source is None, learning_task(config.model.task).labels == "boxes"
    if config.firewall.robust and (untested or boxes or count < 3):
        lacking = "a [data] source to measure updates on" if untested else "three devices to compare"
        lacking = "another task than detection, for which set [firewall] canary" if boxes else lacking
        yield f"advice: robust = true bounds only the norms of updates here: leave-one-out needs {lacking}"
    trim = combiner.options.get("trim", TRIM)
    if combiner.name == "trimmed-mean" and isinstance(trim, int | float) and trim * count < 1 - 1e-9:
        yield (
            f"advice: 'trimmed-mean' with trim = {trim:g} trims nothing of at most {count} devices: "
            f"set trim to {1 / count:.2g} or more, or take 'median'"
        )
    all_freeze = not any(ALL in items for items in config.trained_parts)
    if len(set(levels)) == 1 and ORDERED_DROPOUT in named:
        why = (
            "all tiers have the whole of a frozen network"
            if all_freeze
            else "all tiers have one pruning ratio"
        )
        yield (
            f"advice: {why}, so there are no smaller tiers to train: recipe 'fedavgm' does the same with less"
        )
    if len(set(levels)) > 1 and ORDERED_DROPOUT not in named:
        yield (
            "advice: a tier's model is trained by its own devices alone. Recipe 'attending' trains it on "
            "larger devices too, and raised the accuracy of all tiers (guide: recipes)"
        )
    if any(isinstance(ratio, Mapping) for ratio in config.tiers.ratios) and config.model.from_ and all_freeze:
        yield (
            "advice: a table of [tiers] ratios cuts frozen layers, too, where it names them, and nobody "
            "trains these again. A number cuts nothing of such a network (guide: twenty photos per class)"
        )
    if "attention-matching" in transforms:
        yield (
            "advice: 'attention-matching' moves each client's channels by the client's own order, as the "
            "paper prints it; recipe 'attending' keeps one order for all (guide: recipes)"
        )


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
