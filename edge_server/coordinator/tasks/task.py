"""Makes the tasks of a round."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from edge_client.data.tasks.registry import learning_task
from edge_server.config.config import Config
from edge_server.coordinator.tasks.increments import TaskBlobs
from edge_server.rounds.events import PlanRound
from edge_server.strategy.groups.equal_work import equal_work_epochs
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.strategy import Plan
from schemas.capabilities import Capability
from schemas.messages import DeliverTask, Task, TrainTask
from schemas.messages.object_store import ObjectStoreTerms
from schemas.messages.rollout_terms import TrialTerms
from schemas.security.secure_aggregation import MaskingTerms
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import MAX_COUNTED_CLASSES, ModelSpec, Preprocessing

DELIVERY_TERMS = TrialTerms(watch_s=0.0, latency_ratio=1000.0)
"""A rollout's terms without watching the model after the switch, and without a limit on its latency.

A device that has moved up a tier gets a larger, slower network and must not keep its old model for that.
"""


DISTIL = Component(name="distil", options={"weight": 0.3})
"""How a delivered model that trains further keeps its answers."""
MAX_EPOCHS_ALONE = 50
"""Epochs of that at most, where the file does not state their number, and of what a device trains alone."""
STEPS_OF = {
    Capability.TRAINS_SHARPLY: "sam_radius",
    Capability.WARMS_UP: "warm_up_steps",
    Capability.RATES_BY_WIDTH: "rate_by_width",
}
"""Settings that devices without the capability do not know; 0 means plain steps."""


@dataclass(frozen=True)
class TaskPlan:
    """What one device is to do: its tier, sub-model and epochs; `provenance` is metadata of its export.

    One that is not `sharp` takes plain steps.
    """

    tier: int
    cut: Cut
    ratio: float
    local_epochs: int = 0
    provenance: Mapping[str, str] = field(default_factory=dict)
    can: frozenset[Capability] = frozenset()


@dataclass(frozen=True)
class TaskTemplate:
    """What all tasks of a run have in common."""

    config: Config
    run: str
    model: ModelSpec
    preprocessing: Preprocessing
    uplink: tuple[Component, ...] = ()

    @property
    def without_columns(self) -> "TaskTemplate":
        """The same for a device of an earlier version, which knows none."""
        return replace(self, preprocessing=self.preprocessing.model_copy(update={"columns": ()}))


def plan_training_tasks(
    planned: Plan,
    tiers: Mapping[str, int],
    config: Config,
    *,
    number: int,
    can: Mapping[str, frozenset[Capability]],
    share: Callable[[SubModelSpec], float],
) -> dict[str, TaskPlan]:
    """The plan of every selected device for round `number`.

    The file's epochs apply unless a schedule sets the epochs; where a sub-model's mean step has a `share` of
    the work of a whole one, the device trains further epochs. `can` says what each device can do: those
    that prune first are asked to where the cut says so, the others only score.
    """
    plans: dict[str, TaskPlan] = {}
    for name, chosen in planned.assignments.items():
        epochs = _epochs(config, tiers[name]) if chosen.local_epochs is None else chosen.local_epochs
        plans[name] = TaskPlan(
            tiers[name],
            chosen.cut if Capability.PRUNES_FIRST in can[name] else chosen.cut.only_scored(),
            chosen.ratio,
            equal_work_epochs(number, epochs, share(chosen.cut.spec)),
            can=can[name],
        )
    return plans


def _epochs(config: Config, tier: int) -> int:
    """The epochs of the tier; a tier beyond the list counts as the last one."""
    by_tier = config.tiers.epochs_per_tier
    return by_tier[min(tier, len(by_tier)) - 1] if by_tier else config.training.local_epochs


def make_task(
    template: TaskTemplate,
    command: PlanRound,
    device: str,
    plan: TaskPlan,
    *,
    blobs: TaskBlobs,
    store: ObjectStoreTerms | None,
    masking: MaskingTerms | None,
    participants: int,
) -> Task:
    """The task that gives `device` its part of the round, unsigned; `participants` devices train in it."""
    fields: dict[str, Any] = {
        "federation": template.config.federation.name,
        "run": template.run,
        "round": command.round,
        "attempt": command.attempt,
        "tier": plan.tier,
        "ratio": plan.ratio,
        "model": template.model,
        "preprocessing": template.preprocessing,
        "spec": plan.cut.spec,
        "own": plan.cut.own,
        "depot": store,
        "blobs": blobs.blobs,
        "layers": blobs.layers,
        "channels": blobs.channels,
    }
    if command.deliver:
        trial = DELIVERY_TERMS if template.config.federation.deliver == "trial" else None
        training = personal_training(template.config, template.model, command.round, device, plan)
        return DeliverTask(**fields, trial=trial, provenance=plan.provenance, **training)
    return TrainTask(
        **fields,
        personal=plan.cut.personal,
        returned=plan.cut.returned,
        masking=masking,
        uplink=() if plan.cut.statistics is not None else template.uplink,
        statistics=plan.cut.statistics,
        training=_training(template.config, command.round, device, plan, participants),
        own_model=plan.cut.own_model,
        by_class=counts_classes(template.config, template.model),
    )


def counts_classes(config: Config, model: ModelSpec) -> bool:
    """Whether devices count by class: where they only measure, and nothing keeps their figures secret.

    Masked counts are seen in sum alone.
    """
    privacy, counted = config.privacy, learning_task(model.task).by_class is not None
    secret = privacy.mechanism != "none" and not privacy.release_metrics
    measures = not config.federation.trains and config.federation.by_class
    return counted and measures and not secret and model.num_classes <= MAX_COUNTED_CLASSES


def _training(
    config: Config, round_number: int, device: str, plan: TaskPlan, participants: int
) -> TrainingPlan:
    """The run's training settings with the plan's epochs: 0 where the device only scores channels."""
    settings = config.training.of_round(round_number).model_dump()
    return TrainingPlan(
        **{**settings, "local_epochs": plan.local_epochs if plan.cut.train else 0, **_unknown_steps(plan)},
        seed=_seed(config.federation.seed, round_number, device),
        objectives=plan.cut.objectives,
        participants=participants,
    )


def _unknown_steps(plan: TaskPlan) -> dict[str, int]:
    """The settings of steps that the device's version does not know, as plain steps."""
    return {name: 0 for capability, name in STEPS_OF.items() if capability not in plan.can}


def personal_training(
    config: Config, model: ModelSpec, round_number: int, device: str, plan: TaskPlan
) -> dict[str, Any]:
    """The fields of a delivery that train the model on the device's data; none if it is exported as it is.

    What the device trains alone takes the run's epochs, and the rate of the first round.
    """
    stated, number = config.training.personalise_epochs, max(1, round_number)
    run = number * _epochs(config, plan.tier)
    epochs = stated if stated != "auto" else _personalises(model, plan) * min(2 * run, MAX_EPOCHS_ALONE)
    if not epochs:
        return {}
    seed = _seed(config.federation.seed, round_number, f"{device}/delivery")

    def training(number: int, count: int, objectives: tuple[Component, ...] = ()) -> TrainingPlan:
        steps = {"local_epochs": count, **_unknown_steps(plan), "sam_radius": 0.0, "rate_by_width": False}
        settings = config.training.of_round(number).model_dump()
        return TrainingPlan(**{**settings, **steps}, seed=seed, objectives=objectives)

    if Capability.CHOOSES_DELIVERED not in plan.can:
        return {"personalise": training(number, epochs)}
    return {
        "personalise": training(number, epochs, (DISTIL,) if learning_task(model.task).exclusive else ()),
        "alone": training(1, min(run, MAX_EPOCHS_ALONE)),
        "where_classes_differ": stated == "auto",
    }


def _personalises(model: ModelSpec, plan: TaskPlan) -> bool:
    """Whether the device may train the delivered model unasked: a classifier without layers of its own."""
    able = Capability.CHOOSES_DELIVERED in plan.can
    return able and learning_task(model.task).exclusive and not plan.cut.own


def _seed(seed: int, round_number: int, device: str) -> int:
    """A seed per round and device, the same in every repetition of the run."""
    text = f"{seed}/{round_number}/{device}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")
