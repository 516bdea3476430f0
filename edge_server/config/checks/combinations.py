"""Checks for components that do not work together, from what each component declares.

Settings without effect are no problem: attention matching if no device ranks channels, a staleness discount
in synchronous rounds, filling if all devices train the full model.
"""

from collections import Counter
from collections.abc import Iterator

from edge_client.compression.chain import make_chain
from edge_client.data.tasks.registry import learning_task
from edge_server.config.checks import groups, openings, privacy, summability
from edge_server.config.checks.secure_aggregation import masking_problems
from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.pruning.trained_part import is_lora
from edge_server.strategy.selection.policies import RATIOS
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.interface import Need
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.errors import ConfigError
from schemas.strategy import Component

LOOKED_AT = 10_000  # number of rounds of a schedule that are checked


def problems(config: Config, strategy: Strategy) -> list[ConfigError]:
    """Each invalid combination: section, key, reason and remedy.

    `strategy` is made of `config`, so every name and option is valid.
    """
    checks = (
        _twice,
        groups.group_problems,
        _local_optimizers,
        _low_rank,
        _learning_task,
        _step_counts,
        _transform_order,
        _weights_left_aside,
        _held_out_data,
        _own_layers,
        _check_personalisation,
        _class_names,
        _moved_channels,
        _schedules,
        _buffers,
        _deliveries,
        openings.opening_problems,
        _changing_sub_models,
        privacy.privacy_problems,
        masking_problems,
        privacy.statistics_problems,
        groups.trainer_problems,
        summability.site_problems,
    )
    return [error for check in checks for error in check(config, strategy)] + groups.layer_problems(config)


def _twice(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    for key in ("objectives", "groups", "transforms"):
        for name, count in Counter(component.name for component in getattr(config.strategy, key)).items():
            if count > 1:
                yield ConfigError(
                    f"'{name}' is named {count} times", key=f"[strategy] {key}", remedy="name it once"
                )


def _local_optimizers(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Objectives that change gradients but assume a certain local optimizer."""
    chosen = config.training.optimizer
    for component, objective in groups.objectives_of(config):
        if objective.optimizers and chosen not in objective.optimizers:
            fitting = sorted(objective.optimizers)
            yield ConfigError(
                f"objective '{component.name}' is made for {' and '.join(fitting)}, not '{chosen}'",
                key="[training] optimizer",
                remedy=f'set optimizer = "{fitting[0]}" or leave the objective out',
            )


def _low_rank(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Changes of low rank are those of the received weights."""
    if not any(is_lora(item) for items in config.trained_parts for item in items):
        return
    for component, objective in groups.objectives_of(config):
        if objective.starts_elsewhere:
            yield ConfigError(
                f"objective '{component.name}' starts from weights of the device's own, and \"lora\" sends "
                "changes of those that it received",
                key="[training] train",
                remedy='leave out "lora"',
            )


def _learning_task(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Components that need class numbers, or an accuracy, where the task has none; parts of its pictures."""
    task = learning_task(config.model.task)
    for component, objective in groups.objectives_of(config):
        if objective.labels and task.labels not in objective.labels:
            needed = " or ".join(sorted(objective.labels))
            yield ConfigError(
                f"'{component.name}' needs {needed}, and [model] task '{task.name}' has none",
                key="[strategy] objectives",
                remedy="leave the objective out",
            )
    if task.labels == "boxes" and isinstance(config.data.crop, float):
        yield ConfigError(
            f"{config.data.crop:g}, and [model] task '{task.name}' learns boxes in whole pictures",
            key="[data] crop",
            remedy="leave it out",
        )
    if task.labels != "boxes" and "mosaic" in config.training.augment:
        yield ConfigError(
            f"'mosaic' joins pictures with boxes, and [model] task '{task.name}' has none",
            key="[training] augment",
            remedy="leave it out",
        )
    weighting = config.strategy.weighting.name
    needs = WEIGHTINGS.traits(weighting).needs
    if Need.ACCURACY in needs and not any(metric.name == "accuracy" for metric in task.metrics):
        yield ConfigError(
            f"'{weighting}' goes by accuracy, and [model] task '{task.name}' has none",
            key="[strategy] weighting",
            remedy='set weighting = "examples"',
        )


def _step_counts(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """How often a gradient counts in a round is known only for SGD with a stated momentum."""
    training = config.training
    for component in config.strategy.transforms:
        if not TRANSFORMS.traits(component.name).counts_steps:
            continue
        if training.optimizer != "sgd":
            yield ConfigError(
                f"transform '{component.name}' counts steps of sgd, not of '{training.optimizer}'",
                key="[training] optimizer",
                remedy='set optimizer = "sgd" or leave the transform out',
            )
        elif component.options.get("momentum", 0.0) != training.momentum:
            yield ConfigError(
                f"'{component.name}' counts steps with momentum "
                f"{component.options.get('momentum', 0.0)}, but [training] momentum is "
                f"{training.momentum}",
                key="[strategy] transforms",
                remedy=f'write {{ name = "{component.name}", momentum = {training.momentum} }}',
            )


def _transform_order(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Transforms after a move of channels, when an update is no longer only a step."""
    names = [component.name for component in config.strategy.transforms]
    for index, name in enumerate(names):
        moved = [earlier for earlier in names[:index] if TRANSFORMS.traits(earlier).moves_channels]
        if TRANSFORMS.traits(name).scales and moved:
            yield ConfigError(
                f"'{name}' after '{moved[0]}' would scale the moving of channels too",
                key="[strategy] transforms",
                remedy=f"name it before '{moved[0]}'",
            )


def _weights_left_aside(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    weighting, combiner = config.strategy.weighting.name, config.strategy.combiner.name
    if not (COMBINERS.traits(combiner).takes_weights or WEIGHTINGS.traits(weighting).is_plain):
        yield ConfigError(
            f"combiner '{combiner}' does not go by weights, so those of '{weighting}' would be lost",
            key="[strategy] weighting",
            remedy='set combiner = "mean", or weighting = "examples"',
        )


def _held_out_data(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """The server knows no hold-out of real devices, so the simulation's key is required for both."""
    weighting = config.strategy.weighting.name
    if WEIGHTINGS.traits(weighting).is_measured and config.simulation.hold_out == 0:
        yield ConfigError(
            f"weighting '{weighting}' goes by what devices measure on data that they hold out, "
            "and here they hold out none",
            key="[simulation] hold-out",
            remedy="set hold-out = 0.2",
        )


def _moved_channels(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Channels moved by each client's own order, where devices do not rank them, or keep or send more."""
    spec = config.strategy
    moving = sorted({each.name for each in spec.transforms if TRANSFORMS.traits(each.name).moves_channels})
    if not moving:
        return
    key, remedy = "[strategy] transforms", "leave it out: channels then have one common order"
    if spec.pruner.name != "attention":
        reason = f"'{moving[0]}' needs the scores that pruner 'attention' asks for, not '{spec.pruner.name}'"
        yield ConfigError(reason, key=key, remedy=remedy)
    others = [f"the group '{component.name}'" for component in spec.groups]
    if make_chain(spec.uplink or ()).sparsifier is not None:
        others.append("what a device has not sent yet (uplink)")
    if spec.own is not None:
        others.append(f"the device's own layers (own '{spec.own.name}')")
    for other in others:
        reason = f"'{moving[0]}' moves the model's channels, not those of {other}"
        yield ConfigError(reason, key=key, remedy=remedy)


def _own_layers(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Layers that stay on devices, where the server needs all of a model, or nobody measures it."""
    own = config.strategy.own
    if own is None:
        return
    key, stays = "[strategy] own", f"'{own.name}' stays on devices"
    if strategy.withholds and config.privacy.secure_aggregation:
        reason = f"{stays}, and [privacy] secure-aggregation sums whole models"
        yield ConfigError(reason, key=key, remedy="leave own out, or secure-aggregation")
    if strategy.withholds and strategy.privacy is not None:
        reason = f"{stays}, and [privacy] accounts for whole models"
        yield ConfigError(reason, key=key, remedy="leave own out, or the privacy budget")
    if strategy.withholds and config.firewall.canary is not None:
        reason = f"{stays}, so the server cannot test a model for [firewall] canary"
        yield ConfigError(reason, key=key, remedy="leave one of the two out")
    if config.simulation.hold_out == 0:
        yield ConfigError(
            f"'{own.name}' stays on devices, so they alone can measure their models, and here "
            "they hold out no data",
            key="[simulation] hold-out",
            remedy="set hold-out = 0.2",
        )


def _check_personalisation(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Training of delivered models where nothing is delivered, or nobody can say whether it has helped."""
    key = "[training] personalise-epochs"
    if config.training.personalise_epochs in (0, "auto"):
        return
    if config.federation.deliver == "none":
        yield ConfigError(
            'nothing is delivered with deliver = "none"', key=key, remedy="leave one of the two out"
        )
    if config.simulation.hold_out == 0:
        yield ConfigError(
            "devices keep the trained model only if it is no worse on data that they hold out, "
            "and here they hold out none",
            key=key,
            remedy="set [simulation] hold-out = 0.2",
        )


def _class_names(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    names, count = config.data.classes or (), config.num_classes or 0
    if len(names) > count:
        yield ConfigError(
            f"{len(names)} are named, but [model] num-classes is {count}",
            key="[data] classes",
            remedy="leave num-classes out, or name fewer",
        )


def _schedules(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Schedules for another kind of value, such as epochs for a share of devices."""
    rounds = range(1, min(config.federation.last_round, LOOKED_AT) + 1)
    share, epochs = config.strategy.fraction, config.strategy.local_epochs
    wrong = next((number for number in rounds if not 0 < strategy.fraction(number) <= 1), None)
    if share is not None and wrong is not None:
        yield ConfigError(
            f"'{share.name}' gives {strategy.fraction(wrong)} in round {wrong}",
            key="[strategy] fraction",
            remedy="a share of the devices is above 0 and at most 1",
        )
    if epochs is not None and config.tiers.epochs_per_tier:
        yield ConfigError(
            "[strategy] local-epochs sets the epochs of all tiers",
            key="[tiers] epochs-per-tier",
            remedy="leave one out",
        )
    wanted = strategy.local_epochs
    none = next((number for number in rounds if wanted and round(wanted(number)) < 1), None)
    if epochs is not None and none is not None:
        yield ConfigError(
            f"'{epochs.name}' gives less than one epoch in round {none}",
            key="[strategy] local-epochs",
            remedy="give it numbers of 1 or more",
        )


def _buffers(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Shares of devices in buffered mode, in which every free device trains, up to `concurrency`."""
    if config.clients.mode != "buffered":
        return
    schedule, share = config.strategy.fraction, config.clients.fraction
    for objective in strategy.measuring:
        yield ConfigError(
            f"'{objective.name}' measures the final model in the last round, and in [clients] "
            "mode 'buffered' no round waits for all devices",
            key="[strategy] objectives",
            remedy='leave it out, or set mode = "rounds"',
        )
    reason = "says nothing in [clients] mode 'buffered', where no round chooses its devices"
    remedy = 'leave it out and set [clients] concurrency, or set mode = "rounds"'
    if schedule is not None and schedule != Component(name="constant", options={"value": 1.0}):
        yield ConfigError(f"'{schedule.name}' {reason}", key="[strategy] fraction", remedy=remedy)
    elif schedule is None and share < 1:
        yield ConfigError(f"{share} {reason}", key="[clients] fraction", remedy=remedy)


def _deliveries(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Deliveries between rounds without such a time, or without any delivery."""
    if config.federation.deliver_every == 0:
        return
    key = "[federation] deliver-every"
    if config.federation.deliver == "none":
        yield ConfigError(
            'nothing is delivered with deliver = "none"', key=key, remedy="leave one of the two out"
        )
    if config.clients.mode == "buffered":
        yield ConfigError(
            "in [clients] mode 'buffered' devices are at work between rounds, too",
            key=key,
            remedy='leave it out, which delivers at the end, or set mode = "rounds"',
        )


def _changing_sub_models(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Changes of sub-models are useless to devices that had another sub-model before."""
    pruner, ratio = config.strategy.pruner.name, config.strategy.ratio.name
    changing = [f"pruner '{pruner}'"] if PRUNERS.traits(pruner).is_new_each_round else []
    changing += [] if RATIOS.traits(ratio).is_steady else [f"ratio '{ratio}'"]
    if changing and strategy.downlink.delta is not None:
        yield ConfigError(
            f"'delta' sends what has changed in a sub-model, but {' and '.join(changing)} gives "
            "devices another one in every round",
            key="[strategy] downlink",
            remedy="leave 'delta' out",
        )
