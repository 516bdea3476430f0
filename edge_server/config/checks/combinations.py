"""Checks for components that do not work together, from what each component declares.

Settings without effect are no problem: attention matching if no device ranks channels, a staleness discount
in synchronous rounds, filling if all devices train the full model.
"""

from collections import Counter
from collections.abc import Iterator

from edge_client.compression.chain import make_chain
from edge_client.data.tasks.registry import learning_task
from edge_server.config.checks.groups import group_problems, objectives_of
from edge_server.config.checks.layers import layer_problems
from edge_server.config.checks.openings import opening_problems
from edge_server.config.checks.privacy import privacy_problems, statistics_problems
from edge_server.config.checks.secure_aggregation import masking_problems
from edge_server.config.checks.summability import site_problems
from edge_server.config.checks.trainers import trainer_problems
from edge_server.config.config import Config
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.pruning.pruners import PRUNERS
from edge_server.strategy.selection.policies import RATIOS
from edge_server.strategy.strategy import Strategy
from edge_server.strategy.weighting.interface import Need
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import Component

LOOKED_AT = 10_000  # number of rounds of a schedule that are checked


def problems(config: Config, strategy: Strategy) -> list[str]:
    """One line per invalid combination: section, key, reason and remedy.

    `strategy` is made of `config`, so every name and option is valid.
    """
    checks = (
        _twice,
        group_problems,
        _local_optimizers,
        _learning_task,
        _step_counts,
        _transform_order,
        _weights_left_aside,
        _held_out_data,
        _own_layers,
        _personalised,
        _class_names,
        _moved_channels,
        _schedules,
        _buffers,
        _deliveries,
        opening_problems,
        _changing_sub_models,
        privacy_problems,
        masking_problems,
        statistics_problems,
        trainer_problems,
        site_problems,
    )
    return [line for check in checks for line in check(config, strategy)] + layer_problems(config)


def _twice(config: Config, strategy: Strategy) -> Iterator[str]:
    for key in ("objectives", "groups", "transforms"):
        for name, count in Counter(component.name for component in getattr(config.strategy, key)).items():
            if count > 1:
                yield f"[strategy] {key}: '{name}' is named {count} times: name it once"


def _local_optimizers(config: Config, strategy: Strategy) -> Iterator[str]:
    """Objectives that change gradients but assume a certain local optimizer."""
    chosen = config.training.optimizer
    for component, objective in objectives_of(config):
        if objective.optimizers and chosen not in objective.optimizers:
            fitting = sorted(objective.optimizers)
            yield (
                f"[training] optimizer: objective '{component.name}' is made for {' and '.join(fitting)}, "
                f"not '{chosen}': set optimizer = \"{fitting[0]}\" or leave the objective out"
            )


def _learning_task(config: Config, strategy: Strategy) -> Iterator[str]:
    """Components that need class numbers, or an accuracy, where the task has none."""
    task = learning_task(config.model.task)
    for component, objective in objectives_of(config):
        if objective.labels and task.labels not in objective.labels:
            needed = " or ".join(sorted(objective.labels))
            yield (
                f"[strategy] objectives: '{component.name}' needs {needed}, and [model] task '{task.name}' "
                "has none: leave the objective out"
            )
    weighting = config.strategy.weighting.name
    needs = WEIGHTINGS.traits(weighting).needs
    if Need.ACCURACY in needs and not any(metric.name == "accuracy" for metric in task.metrics):
        yield (
            f"[strategy] weighting: '{weighting}' goes by accuracy, and [model] task '{task.name}' has none: "
            'set weighting = "examples"'
        )


def _step_counts(config: Config, strategy: Strategy) -> Iterator[str]:
    """How often a gradient counts in a round is known only for SGD with a stated momentum."""
    training = config.training
    for component in config.strategy.transforms:
        if not TRANSFORMS.traits(component.name).counts_steps:
            continue
        if training.optimizer != "sgd":
            yield (
                f"[training] optimizer: transform '{component.name}' counts steps of sgd, not of "
                f"'{training.optimizer}': set optimizer = \"sgd\" or leave the transform out"
            )
        elif component.options.get("momentum", 0.0) != training.momentum:
            yield (
                f"[strategy] transforms: '{component.name}' counts steps with momentum "
                f"{component.options.get('momentum', 0.0)}, but [training] momentum is {training.momentum}: "
                f'write {{ name = "{component.name}", momentum = {training.momentum} }}'
            )


def _transform_order(config: Config, strategy: Strategy) -> Iterator[str]:
    """Transforms after a move of channels, when an update is no longer only a step."""
    names = [component.name for component in config.strategy.transforms]
    for index, name in enumerate(names):
        moved = [earlier for earlier in names[:index] if TRANSFORMS.traits(earlier).moves_channels]
        if TRANSFORMS.traits(name).scales and moved:
            yield (
                f"[strategy] transforms: '{name}' after '{moved[0]}' would scale the moving of channels too: "
                f"name it before '{moved[0]}'"
            )


def _weights_left_aside(config: Config, strategy: Strategy) -> Iterator[str]:
    weighting, combiner = config.strategy.weighting.name, config.strategy.combiner.name
    if not (COMBINERS.traits(combiner).takes_weights or WEIGHTINGS.traits(weighting).is_plain):
        yield (
            f"[strategy] weighting: combiner '{combiner}' does not go by weights, so those of '{weighting}' "
            'would be lost: set combiner = "mean", or weighting = "examples"'
        )


def _held_out_data(config: Config, strategy: Strategy) -> Iterator[str]:
    """The server knows no hold-out of real devices, so the simulation's key is required for both."""
    weighting = config.strategy.weighting.name
    if WEIGHTINGS.traits(weighting).is_measured and config.simulation.hold_out == 0:
        yield (
            f"[simulation] hold-out: weighting '{weighting}' goes by what devices measure on data that they "
            "hold out, and here they hold out none: set hold-out = 0.2"
        )


def _moved_channels(config: Config, strategy: Strategy) -> Iterator[str]:
    """Channels moved by each client's own order, where devices do not rank them, or keep or send more."""
    spec = config.strategy
    moving = sorted({each.name for each in spec.transforms if TRANSFORMS.traits(each.name).moves_channels})
    if not moving:
        return
    key, remedy = f"[strategy] transforms: '{moving[0]}'", "leave it out: channels then have one common order"
    if spec.pruner.name != "attention":
        yield f"{key} needs the scores that pruner 'attention' asks for, not '{spec.pruner.name}': {remedy}"
    others = [f"the group '{component.name}'" for component in spec.groups]
    if make_chain(spec.uplink or ()).sparsifier is not None:
        others.append("what a device has not sent yet (uplink)")
    if spec.own is not None:
        others.append(f"the device's own layers (own '{spec.own.name}')")
    for other in others:
        yield f"{key} moves the model's channels, not those of {other}: {remedy}"


def _own_layers(config: Config, strategy: Strategy) -> Iterator[str]:
    """Layers that stay on devices, where the server needs all of a model, or nobody measures it."""
    own = config.strategy.own
    if own is None:
        return
    key, remedy = f"[strategy] own: '{own.name}' stays on devices", "leave own out"
    if strategy.withholds and config.privacy.secure_aggregation:
        yield f"{key}, and [privacy] secure-aggregation sums whole models: {remedy}, or secure-aggregation"
    if strategy.withholds and strategy.privacy is not None:
        yield f"{key}, and [privacy] accounts for whole models: {remedy}, or the privacy budget"
    if strategy.withholds and config.firewall.canary is not None:
        yield f"{key}, so the server cannot test a model for [firewall] canary: leave one of the two out"
    if config.simulation.hold_out == 0:
        yield (
            f"[simulation] hold-out: '{own.name}' stays on devices, so they alone can measure their models, "
            "and here they hold out no data: set hold-out = 0.2"
        )


def _personalised(config: Config, strategy: Strategy) -> Iterator[str]:
    """Training of delivered models where nothing is delivered, or nobody can say whether it has helped."""
    key = "[training] personalise-epochs"
    if config.training.personalise_epochs in (0, "auto"):
        return
    if config.federation.deliver == "none":
        yield f'{key}: nothing is delivered with deliver = "none": leave one of the two out'
    if config.simulation.hold_out == 0:
        yield (
            f"{key}: devices keep the trained model only if it is no worse on data that they hold out, and "
            "here they hold out none: set [simulation] hold-out = 0.2"
        )


def _class_names(config: Config, strategy: Strategy) -> Iterator[str]:
    names, count = config.data.classes or (), config.num_classes or 0
    if len(names) > count:
        yield (
            f"[data] classes: {len(names)} are named, but [model] num-classes is {count}: "
            "leave num-classes out, or name fewer"
        )


def _schedules(config: Config, strategy: Strategy) -> Iterator[str]:
    """Schedules for another kind of value, such as epochs for a share of devices."""
    rounds = range(1, min(config.federation.last_round, LOOKED_AT) + 1)
    share, epochs = config.strategy.fraction, config.strategy.local_epochs
    wrong = next((number for number in rounds if not 0 < strategy.fraction(number) <= 1), None)
    if share is not None and wrong is not None:
        yield (
            f"[strategy] fraction: '{share.name}' gives {strategy.fraction(wrong)} in round {wrong}: "
            "a share of the devices is above 0 and at most 1"
        )
    if epochs is not None and config.tiers.epochs_per_tier:
        yield "[tiers] epochs-per-tier: [strategy] local-epochs sets the epochs of all tiers: leave one out"
    wanted = strategy.local_epochs
    none = next((number for number in rounds if wanted and round(wanted(number)) < 1), None)
    if epochs is not None and none is not None:
        yield (
            f"[strategy] local-epochs: '{epochs.name}' gives less than one epoch in round {none}: "
            "give it numbers of 1 or more"
        )


def _buffers(config: Config, strategy: Strategy) -> Iterator[str]:
    """Shares of devices in buffered mode, in which every free device trains, up to `concurrency`."""
    if config.clients.mode != "buffered":
        return
    schedule, share = config.strategy.fraction, config.clients.fraction
    for objective in strategy.measuring:
        yield (
            f"[strategy] objectives: '{objective.name}' measures the final model in the last round, and in "
            "[clients] mode 'buffered' no round waits for all devices: leave it out, or set mode = \"rounds\""
        )
    reason = "says nothing in [clients] mode 'buffered', where no round chooses its devices"
    remedy = 'leave it out and set [clients] concurrency, or set mode = "rounds"'
    if schedule is not None and schedule != Component(name="constant", options={"value": 1.0}):
        yield f"[strategy] fraction: '{schedule.name}' {reason}: {remedy}"
    elif schedule is None and share < 1:
        yield f"[clients] fraction: {share} {reason}: {remedy}"


def _deliveries(config: Config, strategy: Strategy) -> Iterator[str]:
    """Deliveries between rounds without such a time, or without any delivery."""
    if config.federation.deliver_every == 0:
        return
    key = "[federation] deliver-every"
    if config.federation.deliver == "none":
        yield f'{key}: nothing is delivered with deliver = "none": leave one of the two out'
    if config.clients.mode == "buffered":
        yield (
            f"{key}: in [clients] mode 'buffered' devices are at work between rounds, too: leave it out, "
            'which delivers at the end, or set mode = "rounds"'
        )


def _changing_sub_models(config: Config, strategy: Strategy) -> Iterator[str]:
    """Changes of sub-models are useless to devices that had another sub-model before."""
    pruner, ratio = config.strategy.pruner.name, config.strategy.ratio.name
    changing = [f"pruner '{pruner}'"] if PRUNERS.traits(pruner).is_new_each_round else []
    changing += [] if RATIOS.traits(ratio).is_steady else [f"ratio '{ratio}'"]
    if changing and strategy.downlink.delta is not None:
        yield (
            "[strategy] downlink: 'delta' sends what has changed in a sub-model, but "
            f"{' and '.join(changing)} gives devices another one in every round: leave 'delta' out"
        )
