"""Makes the tasks of a round."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_client.data.tasks.registry import learning_task
from edge_server.config.config import Config
from edge_server.coordinator.tasks.increments import TaskBlobs
from edge_server.rounds.events import PlanRound
from edge_server.strategy.groups.widths import equal_work_epochs
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.strategy import Plan
from schemas.base import fields_of
from schemas.messages import DeliverTask, Task, TrainTask, rollout
from schemas.messages.blobs import ObjectStoreTerms
from schemas.security.secure_aggregation import MaskingTerms
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import MAX_COUNTED_CLASSES, ModelSpec, Preprocessing

DELIVERY_TERMS = rollout.TrialTerms(watch_s=0.0, latency_ratio=1000.0)
"""A rollout's terms without watching the model after the switch, and without a limit on its latency.

A device that has moved up a tier gets a larger, slower network and must not keep its old model for that.
"""


DISTIL = Component(name="distil", options={"weight": 0.3})
"""How a delivered model that trains further keeps its answers."""
MAX_PERSONAL_EPOCHS = 20
"""Epochs of that at most, where the file does not state their number: 10 to 30 end at the same accuracy."""


@dataclass(frozen=True)
class TaskPlan:
    """What one device is to do: its tier, sub-model and epochs; `provenance` is metadata of its export.

    `rates_by_width` is whether its version knows `TrainingPlan.rate_by_width`.
    """

    tier: int
    cut: Cut
    ratio: float
    local_epochs: int = 0
    provenance: Mapping[str, str] = field(default_factory=dict)
    rates_by_width: bool = True


@dataclass(frozen=True)
class TaskTemplate:
    """What all tasks of a run have in common."""

    config: Config
    run: str
    model: ModelSpec
    preprocessing: Preprocessing
    uplink: tuple[Component, ...] = ()


def plan_training_tasks(
    planned: Plan,
    tiers: Mapping[str, int],
    config: Config,
    *,
    number: int,
    share: Callable[[SubModelSpec], float],
    one_rate: Collection[str] = (),
) -> dict[str, TaskPlan]:
    """The plan of every selected device for round `number`.

    The file's epochs apply unless a schedule sets the epochs; where a sub-model's mean step has a `share` of
    the work of a whole one, the device trains further epochs. Devices of `one_rate` know no rate by width.
    """
    plans: dict[str, TaskPlan] = {}
    for name, chosen in planned.assignments.items():
        epochs = _epochs(config, tiers[name]) if chosen.local_epochs is None else chosen.local_epochs
        plans[name] = TaskPlan(
            tiers[name],
            chosen.cut,
            chosen.ratio,
            equal_work_epochs(number, epochs, share(chosen.cut.spec)),
            rates_by_width=name not in one_rate,
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
        **fields_of(template, "run", "model", "preprocessing"),
        **fields_of(command, "round", "attempt"),
        **fields_of(plan, "tier", "ratio"),
        **fields_of(plan.cut, "spec", "own", "trained", "adapters"),
        "depot": store,
        **fields_of(blobs, "blobs", "layers", "frozen", "channels"),
    }
    if command.deliver:
        trial = DELIVERY_TERMS if template.config.federation.deliver == "trial" else None
        training = personal_training(template.config, template.model, command.round, device, plan)
        odds = template.config.training.class_odds if _personalises(template.model, plan) else 1.0
        return DeliverTask(**fields, trial=trial, provenance=plan.provenance, class_odds=odds, **training)
    return TrainTask(
        **fields,
        **fields_of(plan.cut, "personal", "returned", "statistics", "own_model"),
        masking=masking,
        uplink=() if plan.cut.statistics is not None else template.uplink,
        training=_training(template.config, command.round, device, plan, participants),
        by_class=counts_classes(template.config, template.model),
    )


def counts_classes(config: Config, model: ModelSpec) -> bool:
    """Whether devices count by class: where they only measure, or where their leading figures do not add up,
    and nothing keeps their figures secret.

    Masked counts are seen in sum alone; those of boxes in a picture exceed the range of masked numbers.
    """
    privacy, task = config.privacy, learning_task(model.task)
    secret = privacy.mechanism != "none" and not privacy.release_metrics
    if task.counts is not None:
        secret = secret or privacy.secure_aggregation
    measures = config.federation.by_class and (not config.federation.trains or task.counts is not None)
    counted = task.by_class is not None and model.num_classes <= MAX_COUNTED_CLASSES
    return counted and measures and not secret


def _training(
    config: Config, round_number: int, device: str, plan: TaskPlan, participants: int
) -> TrainingPlan:
    """The run's training settings with the plan's epochs: 0 where the device only scores channels."""
    settings = config.training.of_round(round_number)
    # Devices that train whole networks need not know of features.
    about_features = {"feature_cache_mb", "feature_type"} if plan.cut.trained is None else None
    own = {
        "local_epochs": plan.local_epochs if plan.cut.train else 0,
        "rate_by_width": settings.rate_by_width and plan.rates_by_width,
    }
    return TrainingPlan(
        **{**settings.model_dump(exclude=about_features), **own},
        seed=_derive_seed(config.federation.seed, round_number, device),
        objectives=plan.cut.objectives,
        participants=participants,
    )


def personal_training(
    config: Config, model: ModelSpec, round_number: int, device: str, plan: TaskPlan
) -> dict[str, Any]:
    """The fields of a delivery that train the model on the device's data; none if it is exported as it is."""
    stated, number = config.training.personalise_epochs, max(1, round_number)
    unstated = min(2 * number * _epochs(config, plan.tier), MAX_PERSONAL_EPOCHS)
    epochs = stated if stated != "auto" else _personalises(model, plan) * unstated
    if not epochs:
        return {}
    steps = {"local_epochs": epochs, "sam_radius": 0.0, "rate_by_width": False}
    training = TrainingPlan(
        **{**config.training.of_round(number).model_dump(), **steps},
        seed=_derive_seed(config.federation.seed, round_number, f"{device}/delivery"),
        objectives=(DISTIL,) if learning_task(model.task).exclusive else (),
    )
    return {"personalise": training, "where_classes_differ": stated == "auto"}


def _personalises(model: ModelSpec, plan: TaskPlan) -> bool:
    """Whether the device may fit the delivered model unasked: a classifier without layers of its own."""
    return learning_task(model.task).exclusive and not plan.cut.own


def _derive_seed(seed: int, round_number: int, device: str) -> int:
    """A seed per round and device, the same in every repetition of the run."""
    text = f"{seed}/{round_number}/{device}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")
