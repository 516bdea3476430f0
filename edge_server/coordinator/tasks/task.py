"""The tasks of a round: what each chosen device is asked to do, and with which settings."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_server.config.config import Config
from edge_server.coordinator.tasks.increments import TaskBlobs
from edge_server.rounds.events import PlanRound
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.strategy import Plan
from schemas.messages import Task, encode_message
from schemas.messages.rollout_terms import TrialTerms
from schemas.strategy import Component, TrainingPlan
from schemas.values import ModelSpec, Preprocessing

DELIVERY_TERMS = TrialTerms(watch_s=0.0, latency_ratio=1000.0)
"""As a rollout's, but nobody watches the model after the switch, and a slower model is no worse.

A device's tier decides how large its network is: one that has moved up a tier must not keep its old model.
"""


@dataclass(frozen=True)
class TaskPlan:
    """One device's part: what it gets, at which ratio, for how many epochs.

    `provenance` is what the model that a device exports says of itself.
    """

    tier: int
    cut: Cut
    ratio: float
    local_epochs: int = 0
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskTemplate:
    """What all tasks of a run say alike."""

    config: Config
    run: str
    model: ModelSpec
    preprocessing: Preprocessing
    uplink: tuple[Component, ...] = ()


def plan_training_tasks(planned: Plan, tiers: Mapping[str, int], default_epochs: int) -> dict[str, TaskPlan]:
    """The plan's part of every device that it names; the default counts where no schedule says otherwise."""
    return {
        name: TaskPlan(
            tiers[name], one.cut, one.ratio, default_epochs if one.local_epochs is None else one.local_epochs
        )
        for name, one in planned.assignments.items()
    }


def make_task(
    terms: TaskTemplate,
    command: PlanRound,
    device: str,
    job: TaskPlan,
    *,
    parts: TaskBlobs,
    participants: int,
) -> Task:
    """The message that gives `device` its job, as one of so many participants.

    Raises what `encode_message` does: a task that is too large to be sent ends the run here, where the
    reason can be told.
    """
    training = None if command.deliver else _training(terms.config, command.round, device, job, participants)
    task = Task(
        federation=terms.config.federation.name,
        run=terms.run,
        round=command.round,
        attempt=command.attempt,
        action="deliver" if command.deliver else "train",
        tier=job.tier,
        ratio=job.ratio,
        model=terms.model,
        preprocessing=terms.preprocessing,
        spec=job.cut.spec,
        personal=job.cut.personal,
        returned=job.cut.returned,
        uplink=() if command.deliver else terms.uplink,
        training=training,
        blobs=parts.blobs,
        layers=parts.layers,
        channels=parts.channels,
        trial=DELIVERY_TERMS if command.deliver and terms.config.federation.deliver == "trial" else None,
        provenance=job.provenance,
    )
    encode_message(task)
    return task


def _training(
    config: Config, round_number: int, device: str, job: TaskPlan, participants: int
) -> TrainingPlan:
    """The run's settings with the job's epochs; a device that does not train has none."""
    settings = config.training.model_dump()
    return TrainingPlan(
        **{**settings, "local_epochs": job.local_epochs if job.cut.train else 0},
        seed=_seed(config.federation.seed, round_number, device),
        objectives=job.cut.objectives,
        participants=participants,
    )


def _seed(seed: int, round_number: int, device: str) -> int:
    """A seed per round and device, the same wherever and whenever the run is repeated."""
    text = f"{seed}/{round_number}/{device}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:6], "big")
