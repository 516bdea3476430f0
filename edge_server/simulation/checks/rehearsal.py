"""A rehearsal: two rounds of one step each on this machine, before a run asks real devices for them.

The weakest tier and the strongest train on a handful of examples with the code of a device; what they send is
checked and aggregated with the code of the server, every group that the recipe sends included. The second
round starts from what the first has left: ranked channels, groups sent down, what devices keep.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.agent.task_context import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.data.dataset import LabelledData, labelled
from edge_client.data.local import LocalData
from edge_client.storage.private_state import PrivateState
from edge_client.system.user_code import FAILS
from edge_server.config.config import Config
from edge_server.config.privacy import PrivacySettings
from edge_server.config.test_data import model_spec
from edge_server.coordinator.assembly import assemble
from edge_server.coordinator.coordinator import Coordinator
from edge_server.coordinator.evaluation import Testing
from edge_server.coordinator.initial_model import InitialModel
from edge_server.rounds.events import Assignment, CheckUpdate, CloseRound, PlanRound
from edge_server.rounds.fleet import Device
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.messages import TrainTask, Update
from schemas.values import CapabilityProfile, DataCard, ModelSpec

ROUNDS = 2
EXAMPLES = 16
"""Most examples of a step: what fails on these would fail on more."""
LEARNING_RATE = 1e-4
"""At most, so that no step on a few examples runs away: what is rehearsed is whether all fits together."""


@dataclass(frozen=True)
class Rehearsed:
    """What was tried: the network's shapes, trainable numbers per tier, what is worth a word."""

    spec: ModelSpec
    parameters: Mapping[int, int]
    words: tuple[str, ...] = ()


def rehearse(config: Config, data: LabelledData | None, first: InitialModel | None = None) -> Rehearsed:
    """Try the run on some of `data`, or on noise, beginning with `first` if there is one.

    Raises `ConfigError` for what would end it.
    """
    spec = model_spec(config, data)
    examples = _handful(config, spec, data)
    with tempfile.TemporaryDirectory(prefix="edge-check-") as scratch:
        folder = RunFolder.create(Path(scratch) / "run", config)
        tried = _as_rehearsed(config, spec)
        coordinator = assemble(
            tried,
            "check",
            folder,
            resumable=False,
            durable=False,
            broadcasts=False,
            testing=Testing(tried, examples),
            first=first,
        )
        try:
            for number in range(1, ROUNDS + 1):
                _play(coordinator, tried, number, examples, Path(scratch))
            return Rehearsed(spec, coordinator.model.tier_parameters(), coordinator.notices)
        finally:
            coordinator.suspend()


def _as_rehearsed(config: Config, spec: ModelSpec) -> Config:
    """The file without what asks for many devices, or for a long time."""
    shapes = {"input_shape": spec.input_shape, "num_classes": spec.num_classes}
    update = {
        "model": config.model.model_copy(update=shapes),
        "training": config.training.model_copy(
            update={"local_epochs": 1, "learning_rate": min(config.training.learning_rate, LEARNING_RATE)}
        ),
        "strategy": config.strategy.model_copy(update={"local_epochs": None}),
        # Nobody else's data is here, and a few examples say nothing of what is usual.
        "privacy": PrivacySettings(),
        "firewall": config.firewall.model_copy(update={"norm_bound": False, "canary": None}),
    }
    return config.model_copy(update=update)


def _handful(config: Config, spec: ModelSpec, data: LabelledData | None) -> LabelledData:
    rng = np.random.default_rng(0)
    count = max(2, min(EXAMPLES, config.training.batch_size))
    if data is not None:
        return data.subset(rng.permutation(len(data))[:count])
    images = rng.integers(0, 256, (count, *spec.input_shape)).astype(np.uint8)
    return labelled(images, rng.integers(0, spec.num_classes, count))


def _play(
    coordinator: Coordinator, config: Config, number: int, examples: LabelledData, scratch: Path
) -> None:
    devices = tuple(_devices(config, examples))
    planned = coordinator.planner.plan(PlanRound(number, number, devices, wanted=len(devices)))
    updates = {
        name: _update(coordinator, name, assignment, examples, scratch)
        for name, assignment in planned.assignments.items()
    }
    command = CloseRound(number, updates, selected=tuple(updates), dropped=(), rejected={})
    coordinator.aggregator.close(command)


def _devices(config: Config, examples: LabelledData) -> Iterator[Device]:
    """One of the tier that prunes most, and one of the tier that prunes least."""
    levels = config.tiers.levels
    card = DataCard(
        source="check",
        examples=len(examples),
        input_shape=examples.input_shape,
        num_classes=examples.num_classes,
    )
    for name, level in (("weakest", max(levels)), ("strongest", min(levels))):
        yield Device(name, 1, CapabilityProfile(machine="check", tier=levels.index(level) + 1), card)


def _update(
    coordinator: Coordinator, device: str, assignment: Assignment, examples: LabelledData, scratch: Path
) -> Update:
    """What the device sends; raises `ConfigError` where it cannot, or where the server would refuse it."""
    task = assignment.task
    assert isinstance(task, TrainTask)
    private = PrivateState(scratch / device, durable=False)
    place = TaskContext(
        device,
        coordinator.storage.store,
        LocalData(examples, examples),
        scratch / device / "models",
        model_code=frozenset({task.model.name}),
        private=private,
    )
    where = f"round {task.round} of a rehearsal, tier {task.tier} of '{task.model.name}'"
    try:
        update = do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)
    except FAILS as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"{where}: a training step fails: {reason}") from error
    checked = coordinator.checker.check(CheckUpdate(device, update), task, coordinator.model.state)
    if checked.reason is not None:
        raise ConfigError(f"{where}: its update would be refused ({checked.reason}): {checked.detail}")
    private.commit(task.run, task.round, task.attempt)
    return update
