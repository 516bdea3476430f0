"""A rehearsal on this machine: two rounds of one training step, before real devices are asked to train.

A device of the weakest and one of the strongest tier train on a few examples with a device's code, by
`[simulation] trainer`; the server's code checks and aggregates their updates, all groups included. The second
round starts from the ranked channels, downlink groups and private state that the first one left.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data import local, sources
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.tasks.registry import learning_task
from edge_client.inference.export.metadata import ExportRefused
from edge_client.models.build import find_factory
from edge_client.models.registry import is_ours
from edge_client.storage.private_state import PrivateState
from edge_client.system.user_code import FAILS
from edge_client.training.choice import make_trainer
from edge_client.training.trainer import Trainer
from edge_server.config import privacy, test_data
from edge_server.config.config import Config
from edge_server.coordinator import coordinator as assembly
from edge_server.coordinator import evaluation, known_inputs, network_check
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.initial_model import InitialModel, find_initial_model
from edge_server.rounds.events import Assignment, CheckUpdate, CloseRound, PlanRound
from edge_server.rounds.fleet import Device
from edge_server.simulation import board_costs, population
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.service_folder import RUNS
from schemas import capabilities, errors, messages, values
from schemas.base import fields_of
from schemas.errors import ConfigError

ROUNDS = 2
EXAMPLES = 16  # Largest number of examples in a step
NUMBERS = 2**20  # Most numbers in the inputs of a step of more than two examples: 3 pictures of 320x320
LEARNING_RATE = 1e-4  # Largest learning rate, so that a step on a few examples does not diverge


@dataclass(frozen=True)
class Rehearsed:
    """The result of a rehearsal: the network's shapes, parameters per tier, and notices for the user."""

    spec: values.ModelSpec
    parameters: Mapping[int, int]
    notices: tuple[str, ...] = ()
    costs: tuple[board_costs.TierCost, ...] = ()


def check_run(
    config: Config, source: str, *, registry: Path | None = None, on_draw: Callable[[], None] = lambda: None
) -> Rehearsed | None:
    """Check data, partition and network, and rehearse two rounds; None if the data's shape is unknown.

    Raises `ConfigError` for the first problem. The default `registry` for an initial model is that of this
    folder's runs; `on_draw` as in `rehearse`.
    """
    registries = [registry or RUNS / "registry"]
    try:
        config = known_inputs.with_known_inputs(config, registries)
        data = test_data.load_test_data(config)
        if data is not None:
            _check_partition(config)
        if data is None and (config.model.input_shape is None or config.num_classes is None):
            find_factory(config.model.name, what="[model] name")
            return None
        first = find_initial_model(config, registries)
        return rehearse(config, data, first, on_draw=on_draw)
    except ConfigError as error:
        if str(error).startswith(("[", "round ")):
            raise ConfigError.of([error], source) from error
        # An error that names no configuration key is about the network.
        raise ConfigError(str(error), place=source, key="[model] name") from error


def _check_partition(config: Config) -> None:
    data = test_data.read_source(config, sources.part_of(str(config.data.source), "train"))
    try:
        devices = population.make_population(config, data.strata, data.origins)
        if config.simulation.labels:  # without them `where` is about real devices
            population.check_chosen(config, devices)
    except ConfigError as error:
        if str(error).startswith("["):
            raise
        raise ConfigError(str(error), key="[data] partition") from error


def rehearse(
    config: Config,
    data: LabelledData | None,
    first: InitialModel | None = None,
    *,
    on_draw: Callable[[], None] = lambda: None,
) -> Rehearsed:
    """Rehearse on some of `data`, or on noise, from `first` if given; `ConfigError` if the run would fail.

    `on_draw` is called before the graphs of a user's network are drawn, which may take half a minute.
    """
    spec = test_data.model_spec(config, data)
    examples = _handful(config, spec, data)
    with tempfile.TemporaryDirectory(prefix="edge-check-") as scratch:
        folder = RunFolder.create(Path(scratch) / "run", config)
        tried = _as_rehearsed(config, spec)
        coordinator = assembly.assemble(
            tried,
            "check",
            folder,
            resumable=False,
            durable=False,
            broadcasts=False,
            testing=evaluation.Testing(tried, examples),
            first=first,
        )
        # Devices have their networks, and what was found out about them, in common.
        trainer_of = cache(make_trainer)
        try:
            for number in range(1, ROUNDS + 1):
                _play(coordinator, tried, number, examples, Path(scratch), trainer_of)
            draw_networks(coordinator, on_draw)
            model, costs = coordinator.model, board_costs.tier_costs(coordinator, config)
            return Rehearsed(spec, model.tier_parameters(), model.notices, costs)
        finally:
            coordinator.suspend()


def draw_networks(coordinator: Coordinator, on_draw: Callable[[], None]) -> None:
    """Draw the graph of each tier's network, and compare it with torch, where the run exports models."""
    context, model = coordinator.context, coordinator.model
    if not context.strategy.trains or is_ours(context.spec.name):
        return
    on_draw()
    for spec in evaluation.distinct(model.tier_specs()).values():
        try:
            model.network.draw(model.params_of(spec), spec)
        except ExportRefused as error:
            raise ConfigError(network_check.no_export(context.spec.name, str(error))) from error


def _as_rehearsed(config: Config, spec: values.ModelSpec) -> Config:
    """The configuration without the settings that need many devices or much time."""
    shapes = {"input_shape": spec.input_shape, "num_classes": spec.num_classes}
    # Adam's first step has one length in every weight: two rounds of it may have the same bytes.
    rate = min(config.training.learning_rate, LEARNING_RATE)
    step = {"optimizer": "sgd", "warm_up_steps": 0, "local_epochs": 1, "learning_rate": rate}
    update = {
        "model": config.model.model_copy(update=shapes),
        "training": config.training.model_copy(update=step),
        "federation": config.federation.model_copy(update={"testers": 0}),
        "strategy": config.strategy.model_copy(update={"local_epochs": None}),
        # One machine has no other devices' data, and a few examples do not show which norms are usual.
        "privacy": privacy.PrivacySettings(),
        "firewall": config.firewall.model_copy(update={"norm_bound": False, "canary": None}),
    }
    return config.model_copy(update=update)


def _handful(config: Config, spec: values.ModelSpec, data: LabelledData | None) -> LabelledData:
    rng = np.random.default_rng(0)
    large = NUMBERS // math.prod(spec.input_shape)
    count = max(2, min(EXAMPLES, config.training.batch_size, large))
    if data is not None:
        return data.subset(rng.permutation(len(data))[:count])
    images = rng.integers(0, 256, (count, *spec.input_shape)).astype(np.uint8)
    classes = rng.integers(0, spec.num_classes, count)
    numbers = rng.integers(0, 2, (count, spec.num_classes)).astype(np.float32)
    kind = learning_task(spec.task).labels
    others = _middle_boxes(classes, spec.input_shape) if kind == "boxes" else numbers
    noise = make_labelled_data(images, classes if kind == "classes" else others)
    return replace(noise, preprocessing=test_data.as_stated(noise.preprocessing, config.data, spec))


def _middle_boxes(classes: NDArray[np.int64], input_shape: tuple[int, ...]) -> NDArray[np.float32]:
    """A box [N, 1, 5] of each class in the middle half of a picture."""
    height, width = input_shape[-2:]
    corners = np.array([width, height, 3 * width, 3 * height]) / 4
    return np.column_stack([classes, np.tile(corners, (len(classes), 1))]).astype(np.float32)[:, None]


TrainerOf = Callable[[values.TrainerName], Trainer]


def _play(
    coordinator: Coordinator,
    config: Config,
    number: int,
    examples: LabelledData,
    scratch: Path,
    trainer_of: TrainerOf,
) -> None:
    devices = tuple(_devices(config, examples))
    planned = coordinator.planner.plan(PlanRound(number, number, devices, wanted=len(devices)))
    for device, why in coordinator.planner.left_out.items():
        raise ConfigError(
            f"the device {device} cannot train with onnxruntime: {why}",
            key="[simulation] trainer",
            remedy='set trainer = "torch"',
        )
    updates = {
        device.name: _update(coordinator, device, assignment, examples, scratch, trainer_of)
        for device in devices
        if (assignment := planned.assignments.get(device.name)) is not None
    }
    command = CloseRound(number, updates, selected=tuple(updates), dropped=(), rejected={})
    coordinator.aggregator.close(command)


def _devices(config: Config, examples: LabelledData) -> Iterator[Device]:
    """With each trainer a device of the tier that prunes most, and one of the tier that prunes least."""
    levels = config.tiers.levels
    shapes = fields_of(examples, "input_shape", "num_classes", "columns")
    card = values.DataCard(source="check", examples=len(examples), **shapes)
    ends = (("weakest", max(levels)), ("strongest", min(levels)))
    for trainer, (name, level) in product(dict.fromkeys(config.simulation.trainers), ends):
        profile = values.CapabilityProfile(machine="check", tier=levels.index(level) + 1, trainers=(trainer,))
        yield Device(f"{name}-{trainer}", 1, profile, card, can=capabilities.ALL)


def _update(
    coordinator: Coordinator,
    device: Device,
    assignment: Assignment,
    examples: LabelledData,
    scratch: Path,
    trainer_of: TrainerOf,
) -> messages.Update:
    """The device's update; raises `ConfigError` if training fails or the server would refuse the update."""
    task = assignment.task
    assert isinstance(task, messages.TrainTask)
    private = PrivateState(scratch / device.name, durable=False)
    context = TaskContext(
        device.name,
        coordinator.storage.store,
        local.LocalData(examples, examples),
        scratch / device.name / "models",
        model_code=frozenset({task.model.name}),
        private=private,
        trainer=trainer_of(device.profile.trainers[0]),
    )
    where = f"round {task.round} of a rehearsal, tier {task.tier} of '{task.model.name}'"
    train = partial(do_training, task, context, on_epoch=lambda _: None, should_stop=lambda: False)
    try:
        update = train()
        again = update if is_ours(task.model.name) else train()
    except FAILS as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"a training step fails: {reason}", place=where) from error
    if again.blob.digest != update.blob.digest:
        raise ConfigError(
            "the same step, taken twice, gives two results: the network keeps something outside of "
            "itself (in its class, a global variable, a cache), or draws from a generator that nobody "
            "seeds",
            place=where,
            remedy="keep it in parameters, buffers or attributes",
        )
    checked = coordinator.checker.check(CheckUpdate(device.name, update), task, coordinator.model.state)
    if checked.reason is errors.Reason.REPLAYED:
        raise ConfigError(
            "the step changes nothing, so that the update has the bytes of the round before",
            place=where,
            remedy="raise [training] learning-rate, or let the outputs depend on parameters that are trained",
        )
    if checked.reason is not None:
        raise ConfigError(f"its update would be refused ({checked.reason}): {checked.detail}", place=where)
    private.commit(task.run, task.round, task.attempt)
    return update
